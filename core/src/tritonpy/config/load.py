"""Find and read the configuration of a model: `config.pbtxt`, JSON or YAML.

Nothing is filled in and nothing judged here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from google.protobuf import text_format

from tritonpy.config.config_error import Problem
from tritonpy.config.named_files import check_named_file
from tritonpy.config.read import Misfit, check_enums, config_from_dict, read_document
from tritonpy.config.source_positions import find_place, place_of_field, read_json
from tritonpy.config.write import ConfigForm
from tritonpy.errors import Internal, InvalidArg, NotFound
from tritonpy.protos import POOL, ModelConfig

CONFIG_NAMES_DIRECTORY = "configs"
"""The folder in a model's directory with configurations that are chosen by name."""

_DEFAULT_NAME = "config"


def find_config(directory: Path, config_name: str = "") -> Path | None:
    """The configuration file of a model; None if it has none. Blocking.

    Args:
        directory: of the model.
        config_name: `configs/<config_name>.pbtxt` is taken where it exists, in any form, and
            `config.pbtxt` otherwise; "" for always the latter. See `check_config_name`.

    Raises:
        InvalidArg: there are two files, so the configuration is ambiguous.
    """
    if config_name:
        named = _single_file(directory / CONFIG_NAMES_DIRECTORY, config_name)
        if named is not None:
            return named
    return _single_file(directory, _DEFAULT_NAME)


def _single_file(directory: Path, stem: str) -> Path | None:
    # Also a link that leads nowhere: a model whose configuration cannot be read is not one that has none.
    present = [path for path in (directory / f"{stem}{suffix}" for suffix in FORMS) if os.path.lexists(path)]
    if len(present) > 1:
        raise InvalidArg(
            f"{directory} has {' and '.join(path.name for path in present)}: expected one of them, because "
            f"a model has one configuration"
        )
    return present[0] if present else None


def check_config_name(name: str) -> None:
    """Refuse a name that is not the name of one file in a model's `configs`.

    Raises:
        InvalidArg: says what a name must not have.
    """
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise InvalidArg(
            f"'{name}' is no name of a configuration: expected the name of a file in the models' "
            f"'{CONFIG_NAMES_DIRECTORY}', without '.pbtxt', '/' and NUL and not beginning with '.' "
            f"(--model-config-name)"
        )


MAX_CONFIG_BYTE_SIZE = 1_048_576
"""Default of `--max-model-config-bytes`."""

FORMS: dict[str, ConfigForm] = {".pbtxt": "pbtxt", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
"""The form of a configuration by how its file's name ends."""


def load_config(path: Path, *, max_byte_size: int = MAX_CONFIG_BYTE_SIZE) -> ModelConfig:
    """Read a configuration file; the suffix of its name tells its form, text format for unknown ones.

    Args:
        path: the file.
        max_byte_size: a larger one is refused before it is read: parsing takes seconds for a megabyte.

    Raises:
        NotFound: there is no such file, or it cannot be read, as a pipe or a device.
        InvalidArg: it is too large, or see `parse_config`.
    """
    try:
        check_named_file(path)
        with path.open("rb") as file:
            content = file.read(max_byte_size + 1)
    except Internal as exc:
        raise NotFound(exc.message) from exc
    except OSError as exc:
        raise NotFound(f"failed to open text file for read {path}: {exc.strerror}") from exc
    if len(content) > max_byte_size:
        raise InvalidArg(
            f"{_failed(path)}: it has more than {max_byte_size} bytes, the most that a configuration may "
            f"have (--max-model-config-bytes)"
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise InvalidArg(f"{_failed(path)}: line {line}: not UTF-8 text") from exc
    return parse_config(text, path, FORMS.get(path.suffix, "pbtxt"))


def parse_config(text: str, source: str | Path, form: ConfigForm = "pbtxt") -> ModelConfig:
    """Read the text of a configuration.

    Args:
        text: the content of a file.
        source: its path, for errors.
        form: how it is written.

    Raises:
        InvalidArg: a syntax error, an unknown field or a value of the wrong type, with line and column where
            the parser knows them.
    """
    try:
        match form:
            case "pbtxt":
                return _parse_text(text)
            case "json":
                return _parse_json(text)
            case "yaml":
                return _parse_yaml(text)
    except Problem as exc:
        raise InvalidArg(f"{_failed(source, form)}: {exc}") from exc


def parse_config_json(
    text: str | bytes, model_name: str, *, max_byte_size: int = MAX_CONFIG_BYTE_SIZE
) -> ModelConfig:
    """Read a configuration from JSON text, such as the `config` parameter of a load request.

    Args:
        text: a JSON object in the shape of `GET /v2/models/<name>/config`.
        model_name: the model, for errors.
        max_byte_size: a longer one is refused.

    Raises:
        InvalidArg: the text is too long or no JSON, or see `config_from_dict`.
    """
    if len(text) > max_byte_size:
        raise InvalidArg(
            f"the configuration of model '{model_name}' has {len(text)} bytes, expected at most "
            f"{max_byte_size} (--max-model-config-bytes)"
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidArg(f"the configuration of model '{model_name}' is not JSON: {exc}") from exc
    return config_from_dict(document, model_name)


def _failed(source: str | Path, form: ConfigForm | None = None) -> str:
    """The beginning of errors about a file; for text format in Triton's words."""
    form = form or FORMS.get(Path(source).suffix, "pbtxt")
    return f"failed to read {'text proto' if form == 'pbtxt' else form.upper()} from {source}"


def _parse_text(text: str) -> ModelConfig:
    config = ModelConfig()
    try:
        text_format.Parse(text, config, descriptor_pool=POOL)
    except text_format.ParseError as exc:
        line, column = exc.GetLine(), exc.GetColumn()
        # protobuf's own text begins with `3:5 : `
        reason = str(exc)
        if line is not None:
            reason = reason.removeprefix(f"{line}:{column}").removeprefix(f"{line}").lstrip(" :")
            # The whole line may follow, however long it is.
            reason = reason.removeprefix(f"'{_line(text, line)}': ")
        raise Problem(reason, line, column) from exc
    except RecursionError as exc:
        raise Problem("it is nested too deeply") from exc
    try:
        check_enums(config)
    except Misfit as exc:
        place = place_of_field(text, "pbtxt", str(exc.steps[0])) or (None, None)
        raise Problem(str(exc), *place) from exc
    return config


def _line(text: str, number: int) -> str:
    return text.split("\n", number)[number - 1]


def _parse_json(text: str) -> ModelConfig:
    document = read_json(text)
    try:
        return read_document(document)
    except Misfit as exc:
        raise Problem(str(exc), *find_place(text, exc.steps)) from exc


def _parse_yaml(text: str) -> ModelConfig:
    from tritonpy.config.yaml_text import read_yaml  # a library that only YAML needs

    document, places = read_yaml(text)
    try:
        return read_document(document)
    except Misfit as exc:
        raise Problem(str(exc), *places.get(exc.steps, (None, None))) from exc
