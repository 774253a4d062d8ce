"""Files that a configuration names: their paths, the check that they lie inside the model, their bytes.

People who can write into a repository decide what lies in a model, also by symbolic links, which are followed
anywhere. People who can only send load requests can name files of the model and no others.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tritonpy.config.config_error import shown
from tritonpy.errors import Internal, InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.protos import ModelConfig
from tritonpy.states import StateSpecs

_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_ENVIRONMENT = "EXECUTION_ENV_PATH"
_STRATEGY = "TRITON_BATCH_STRATEGY_PATH"
_STRATEGY_FILES = (".so", ".py")
_VERSION = "<version>"
_INITIAL_STATE = "initial_state"

Labels = Mapping[str, Sequence[bytes]]
"""By output; only those with a label file."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as a configuration names it.

    Attributes:
        field: what names it.
        path: as it stands there.
        base: where relative paths begin, below the model's directory; `<version>` for each version's.
    """

    field: str
    path: str
    base: str = ""


def model_files(config: ModelConfig) -> Iterator[NamedFile]:
    """The files that are opened as the model itself."""
    if config.default_model_filename:
        yield NamedFile("default_model_filename", config.default_model_filename, _VERSION)
    for path in config.cc_model_filenames.values():
        yield NamedFile("cc_model_filenames", path, _VERSION)


def named_files(config: ModelConfig) -> Iterator[NamedFile]:
    """Every file that a configuration names."""
    yield from model_files(config)
    for output in config.output:
        if output.label_filename:
            yield NamedFile("label_filename", output.label_filename)
    for path in config.model_operations.op_library_filename:
        yield NamedFile("op_library_filename", path)
    for state in config.sequence_batching.state:
        for initial in state.initial_state:
            if initial.data_file:
                yield NamedFile("data_file", initial.data_file, _INITIAL_STATE)
    for warmup in config.model_warmup:
        for tensor in warmup.inputs.values():
            if tensor.input_data_file:
                yield NamedFile("input_data_file", tensor.input_data_file, "warmup")
    environment = config.parameters[_ENVIRONMENT].string_value if _ENVIRONMENT in config.parameters else ""
    if environment:
        yield NamedFile(f"parameter {_ENVIRONMENT}", environment)
    strategy = config.parameters[_STRATEGY].string_value if _STRATEGY in config.parameters else ""
    if "/" in strategy or strategy.endswith(_STRATEGY_FILES):
        yield NamedFile(f"parameter {_STRATEGY}", strategy, _VERSION)


def check_model_files(config: ModelConfig, name: str) -> None:
    """Refuse a model whose own file is named as one outside of its version directory.

    Args:
        config: as it was read.
        name: of the model.

    Raises:
        InvalidArg: names the field and the path.
    """
    for file in model_files(config):
        if _leads_out(file.path):
            raise InvalidArg(
                f"'{file.field}' of model '{name}' is '{shown(file.path)}': expected a path inside the "
                f"version directory, neither absolute nor with '..'; a symbolic link there may lead elsewhere"
            )


def check_sent_files(
    config: ModelConfig, directory: Path, versions: Sequence[int], own: Container[str]
) -> None:
    """Refuse a configuration that came with a load request and names a file outside of the model; blocking.

    Args:
        config: as it came.
        directory: of the model, which is called like it.
        versions: its version numbers.
        own: paths that the model's own configuration names; where links lead them is its owner's affair, as
            it is for the usual names such as `model.onnx`.

    Raises:
        InvalidArg: names the field and the path.
    """
    name = directory.name
    for file in named_files(config):
        path = file.path
        if path in own or (file.base == _VERSION and path.startswith("model.") and "/" not in path):
            continue
        if file.field.endswith(_ENVIRONMENT) and path.startswith(_MODEL_DIRECTORY):
            path = path.removeprefix(_MODEL_DIRECTORY).lstrip("/")
        if _leads_out(path) or not _is_inside(directory, _bases(file.base, versions), path):
            raise InvalidArg(
                f"'{file.field}' of model '{name}' is '{shown(file.path)}': a load request names files "
                f"inside the model's directory only, neither absolute, nor with '..', nor through a symbolic "
                f"link that leads out"
            )


def label_path(directory: Path, filename: str) -> Path:
    """The path of a label file below the model's directory, as in Triton also if its name begins with `/`."""
    return directory / filename.lstrip("/")


def read_named_file(path: Path) -> bytes:
    """The bytes of a file that a configuration names; blocking, but not for what is no file.

    Raises:
        Internal: it cannot be read, in Triton's words.
    """
    check_named_file(path)
    try:
        return path.read_bytes()
    except OSError as exc:
        raise _unreadable(path, exc.strerror) from exc


def check_named_file(path: Path) -> None:
    """Refuse a path where `read_named_file` would find nothing to read; blocking.

    Raises:
        Internal: in Triton's words.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        raise _unreadable(path, exc.strerror if isinstance(exc, OSError) else str(exc)) from exc
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
        raise _unreadable(path, "it is no regular file")
    if not os.access(path, os.R_OK):
        raise _unreadable(path, os.strerror(errno.EACCES))


def _unreadable(path: Path, reason: str | None) -> Internal:
    return Internal(f"failed to open text file for read {path}: {reason}")


def _leads_out(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.parts or "\0" in path or parts.is_absolute() or ".." in parts.parts


def _bases(base: str, versions: Sequence[int]) -> list[str]:
    return [str(version) for version in versions] if base == _VERSION else [base]


def _is_inside(directory: Path, bases: Sequence[str], path: str) -> bool:
    root = directory.resolve()
    try:
        return all((root / base / path).resolve().is_relative_to(root) for base in bases)
    except (OSError, RuntimeError):  # links in a circle, a name that is too long
        return False


def read_labels(config: JsonObject, directory: Path) -> Labels:
    """Read the label files that a configuration names.

    Args:
        config: of the model.
        directory: of the model; names of label files are relative to it.

    Raises:
        Internal: one cannot be read; the code is Triton's.
    """
    labels = {}
    for output in config.get("output", ()):
        if output.get("label_filename"):
            lines = read_named_file(label_path(directory, output["label_filename"])).split(b"\n")
            if not lines[-1]:  # the last line has its end, too
                lines.pop()
            labels[output["name"]] = lines
    return labels


def read_states(config: JsonObject, directory: Path) -> StateSpecs | None:
    """The states that a normalised configuration describes, None where there are none; blocking.

    Raises:
        InvalidArg: the data of an initial state does not fit it, or it names no file of its directory.
        Internal: a file cannot be read.
    """
    states = config.get("sequence_batching", {}).get("state", ())
    if not states:
        return None
    names = {
        initial["data_file"]
        for state in states
        for initial in state.get("initial_state", ())
        if "data_file" in initial
    }
    return StateSpecs(config, {name: _read_initial_state(name, directory / _INITIAL_STATE) for name in names})


def _read_initial_state(name: str, directory: Path) -> bytes:
    path = PurePosixPath(name)
    if not path.name or "\0" in name or path.is_absolute() or ".." in path.parts:
        raise InvalidArg(
            f"initial_state setting expects 'data_file' to name a file below '{directory}', got '{name}'"
        )
    return read_named_file(directory / path)
