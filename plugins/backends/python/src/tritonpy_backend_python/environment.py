"""The Python that runs a model: its configuration's, its backend's, the default, or the server's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tritonpy.plugin import Internal, InvalidArg, Model

from tritonpy_backend_python.archive import SUFFIXES, is_archive
from tritonpy_backend_python.interpreter import (
    BadInterpreter,
    Interpreter,
    check_interpreter,
    find_interpreter,
)
from tritonpy_backend_python.settings import RUNTIME
from tritonpy_backend_python.store import StoreFailure, default_store

PARAMETER = "EXECUTION_ENV_PATH"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
BACKEND_ARCHIVE = "pb_exec_env_model.py.tar.gz"

_EXPECTED = (
    f"expected the directory of a virtual or conda environment, the path of an interpreter, or a packed "
    f"environment ({', '.join(SUFFIXES)})"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """An environment as it was named.

    Attributes:
        path: where it should be.
        origin: the setting that named it, for errors.
    """

    path: str
    origin: str


def chosen_environment(model: Model, default: str) -> Choice | None:
    """The environment that a model has to run in; None for the server's own.

    Args:
        model: its parameters and its backend's directory are looked at.
        default: the setting for models that name none, or "".
    """
    given = model.parameter(PARAMETER)
    if given:
        path = given
        if given.startswith(MODEL_DIRECTORY):
            path = f"{model.directory}{given.removeprefix(MODEL_DIRECTORY)}"
        return Choice(path, f"parameter {PARAMETER} of model '{model.name}' is '{given}'")
    if model.backend.directory is not None:
        archive = model.backend.directory / BACKEND_ARCHIVE
        if archive.exists():
            return Choice(str(archive), f"it lies beside the model.py of backend '{model.backend.name}'")
    if default:
        return Choice(default, f"--backend-config={model.backend.name},{RUNTIME} is '{default}'")
    return None


def prepare_environment(choice: Choice) -> Interpreter:
    """Unpack the environment if it is packed, and check its interpreter. Blocking, perhaps for minutes.

    Raises:
        Internal: there is nothing that could be an environment.
        InvalidArg: its interpreter cannot run models.
    """
    try:
        path = Path(choice.path).absolute()
        path = path.resolve(strict=True) if path.is_dir() else path.parent.resolve(strict=True) / path.name
        path.stat()
    except (OSError, RuntimeError, ValueError) as exc:  # also links in a circle, and a NUL in the path
        reason = getattr(exc, "strerror", None) or str(exc)
        raise Internal(
            f"Failed to get the canonical path for {os.path.normpath(choice.path)}. {reason}: "
            f"{choice.origin}; {_EXPECTED}"
        ) from exc
    try:
        return check_interpreter(_interpreter_at(path))
    except StoreFailure as exc:
        raise Internal(f"{exc}; {choice.origin}") from exc
    except BadInterpreter as exc:
        raise InvalidArg(f"{exc}: {choice.origin}; {_EXPECTED}") from exc


def _interpreter_at(path: Path) -> Path:
    if path.is_dir():
        return find_interpreter(path)
    if os.access(path, os.X_OK) and not path.name.lower().endswith(SUFFIXES):
        return path
    try:
        is_packed = is_archive(path)
    except OSError as exc:
        raise BadInterpreter(f"{path} cannot be read: {exc.strerror}") from exc
    if not is_packed:
        raise BadInterpreter(f"{path} is neither a program nor an archive")
    return find_interpreter(default_store().unpack(path))
