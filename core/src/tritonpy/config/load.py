"""From `config.pbtxt` or JSON text to a configuration; nothing is filled in and nothing judged here."""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf import text_format

from tritonpy.config.read import config_from_dict
from tritonpy.config.schema import ModelConfig
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.protos import POOL


def load_config(path: Path) -> ModelConfig:
    """Read a `config.pbtxt`.

    Raises:
        NotFound: there is no such file, or it cannot be read.
        InvalidArg: see `parse_config`.
    """
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise NotFound(f"failed to open text file for read {path}: {exc.strerror}") from exc
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise InvalidArg(f"failed to read text proto from {path}: line {line}: not UTF-8 text") from exc
    return parse_config(text, str(path))


def parse_config(text: str, source: str) -> ModelConfig:
    """Read a configuration in protobuf text format.

    Args:
        text: the content of a `config.pbtxt`.
        source: its path, for errors.

    Raises:
        InvalidArg: a syntax error, an unknown field or a value of the wrong type, with line and column.
    """
    config = ModelConfig()
    try:
        text_format.Parse(text, config, descriptor_pool=POOL)
    except text_format.ParseError as exc:
        raise InvalidArg(f"failed to read text proto from {source}: {_explain(exc)}") from exc
    return config


def parse_config_json(text: str | bytes, model_name: str) -> ModelConfig:
    """Read a configuration from JSON text, such as the `config` parameter of a load request.

    Args:
        text: a JSON object in the shape of `GET /v2/models/<name>/config`.
        model_name: whose configuration it is, for errors.

    Raises:
        InvalidArg: the text is no JSON, or see `config_from_dict`.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidArg(f"the configuration of model '{model_name}' is not JSON: {exc}") from exc
    return config_from_dict(document, model_name)


def _explain(exc: text_format.ParseError) -> str:
    """`line 3, column 5: …` where protobuf knows the place; its own text begins with `3:5 : `."""
    line, column = exc.GetLine(), exc.GetColumn()
    if line is None:
        return str(exc)
    said = str(exc).removeprefix(f"{line}:{column}").removeprefix(f"{line}").lstrip(" :")
    place = f"line {line}" if column is None else f"line {line}, column {column}"
    return f"{place}: {said}"
