"""Find what is wrong with configurations before a server does: all of it, with file and line."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tritonpy.config import validate, validate_ensemble, validate_scheduling, validate_tensors
from tritonpy.config.complete import complete_backend, normalize
from tritonpy.config.config_error import Problem
from tritonpy.config.load import FORMS, find_config, load_config
from tritonpy.config.source_positions import place_of_field
from tritonpy.config.versions import missing_versions, select_versions
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.lifecycle.resolved_config import read_config
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import ModelDirectory, read_model, require_versions

Rule = Callable[[ModelConfig], None]

# Every rule of `validate` with the field that it is about. Devices are left out: those of this machine need
# not be those of the server.
RULES: dict[str, tuple[str, Rule]] = {
    rule.__name__: (field, rule)
    for field, rule in (
        ("platform", validate.check_platform),
        ("max_batch_size", validate.check_max_batch_size),
        ("instance_group", validate_ensemble.check_ensemble_has_no_instances),
        ("ensemble_scheduling", validate_ensemble.check_ensemble_graph),
        ("dynamic_batching", validate_scheduling.check_dynamic_batching),
        ("sequence_batching", validate_scheduling.check_sequence_batching),
        ("response_cache", validate.check_response_cache),
        ("model_metrics", validate.check_metrics),
        ("input", validate_tensors.check_inputs),
        ("output", validate_tensors.check_outputs),
        ("batch_input", validate_tensors.check_batch_io),
        ("sequence_batching", validate_scheduling.check_states),
        ("model_warmup", validate_tensors.check_warmup),
    )
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One error or warning.

    Attributes:
        path: the file, or the directory where there is none.
        message: what is wrong.
        line, column: where in the file, from 1; None where that is not known.
        is_warning: the server would do without.
    """

    path: Path
    message: str
    line: int | None = None
    column: int | None = None
    is_warning: bool = False

    def __str__(self) -> str:
        place = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        return f"{self.path}{place}: {'warning' if self.is_warning else 'error'}: {self.message}"


def find_targets(path: Path) -> list[Path]:
    """The targets of a check at a path: model directories, or a single file that belongs to no model.

    Args:
        path: a repository, a model's directory, or a configuration file.

    Raises:
        InvalidArg: there is nothing of the kind.
    """
    if path.is_file():
        return [path.parent if path.stem == "config" and path.suffix in FORMS else path]
    if not path.is_dir():
        raise InvalidArg(f"'{path}': no such file or directory")
    if is_model(path):
        return [path]
    models = [child for child in sorted(path.iterdir()) if child.is_dir() and child.name[0] != "."]
    if not models:
        raise InvalidArg(
            f"'{path}' is neither a model nor a repository: expected a configuration file, version "
            f"directories such as '1', or directories that are models"
        )
    return models


def is_model(directory: Path) -> bool:
    """True if a directory looks like a model: a configuration or a version lies in it."""
    return any(
        child.is_dir() and child.name.isascii() and child.name.isdigit()
        if child.is_dir()
        else child.stem == "config" and child.suffix in FORMS
        for child in directory.iterdir()
    )


def check_config(path: Path, *, is_strict: bool = False, config_name: str = "") -> list[Finding]:
    """Everything that is wrong with one configuration, without asking the model's backend.

    Args:
        path: a model's directory, or a configuration file that belongs to none.
        is_strict: the configuration must be there, and should name inputs and outputs: it is not completed.
        config_name: which of several configurations of a model; see `find_config`.
    """
    with _Warnings() as warnings:
        try:
            if path.is_dir():
                findings = list(_check_model(path, is_strict, config_name))
            else:
                findings = list(_check_file(path, is_strict))
        except OSError as exc:  # such as a directory that may not be read
            findings = [Finding(Path(exc.filename or path), exc.strerror or str(exc))]
    return findings + [Finding(path, text, is_warning=True) for text in warnings.texts]


def _check_model(path: Path, is_strict: bool, config_name: str) -> Iterator[Finding]:
    # A link is a model of its own name, as for a server.
    directory = replace(read_model(Path(os.path.abspath(path))), path=path)
    file = None
    try:
        file = find_config(path, config_name)
    except TritonError as error:
        yield Finding(path, error.message)
        return
    if file is not None:
        config = yield from _read(file)
        if config is None:
            return
        findings = list(_check_rules(config, file, directory, is_strict))
        if findings:
            yield from findings
            return
    where = file or path
    try:
        config = read_config(directory, is_strict=is_strict, config_name=config_name)
        require_versions(directory, select_versions(config, directory.versions))
        validate.validate_files(config, path)
    except TritonError as error:
        yield Finding(where, error.message)
        return
    for version in missing_versions(config, directory.versions):
        yield Finding(where, f"version {version} is specified, but has no directory", is_warning=True)


def _check_file(path: Path, is_strict: bool) -> Iterator[Finding]:
    config = yield from _read(path)
    if config is not None:
        config.name = config.name or path.stem
        yield from _check_rules(config, path, None, is_strict)


def _read(path: Path) -> Generator[Finding, None, ModelConfig | None]:
    """Yield why a file cannot be read; return its configuration."""
    try:
        return load_config(path)
    except TritonError as error:
        cause = error.__cause__
        if isinstance(cause, Problem):
            yield Finding(path, cause.reason, cause.line, cause.column)
        else:
            yield Finding(path, error.message)
        return None


def _check_rules(
    config: ModelConfig, path: Path, directory: ModelDirectory | None, is_strict: bool
) -> Iterator[Finding]:
    text, form = path.read_text(encoding="utf-8"), FORMS.get(path.suffix, "pbtxt")

    def finding(field: str, message: str) -> Finding:
        quoted = re.findall(r"'([^']+)'", message)
        places = (place_of_field(text, form, field, name) for name in (*quoted, ""))
        return Finding(path, message, *(next(filter(None, places), (None, None))))

    given = ModelConfig()
    given.CopyFrom(config)
    if directory is not None:
        try:
            complete_backend(config, directory.path, directory.versions[0] if directory.versions else None)
            validate.check_name(config, directory.name)
        except TritonError as error:
            yield finding("name", error.message)
    normalize(config)
    for name, (field, rule) in RULES.items():
        if directory is None and name == "check_platform" and not (config.backend or config.platform):
            continue  # the files beside it may tell
        try:
            rule(config)
        except TritonError as error:
            yield finding(field, error.message)
    if is_strict:
        for field in ("input", "output"):
            if not getattr(given, field):
                message = f"'{field}' is missing, and auto-complete is disabled"
                yield Finding(path, message, is_warning=True)  # as in Triton, it is served without any


class _Warnings(logging.Handler):
    """Gathers what reading a configuration warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._log = logging.getLogger("tritonpy.repository")

    def __enter__(self) -> _Warnings:
        self._log.addHandler(self)
        self._propagated, self._log.propagate = self._log.propagate, False
        return self

    def __exit__(self, *error: object) -> None:
        self._log.removeHandler(self)
        self._log.propagate = self._propagated

    def emit(self, record: logging.LogRecord) -> None:
        """Keep its text."""
        self.texts.append(record.getMessage())
