"""Custom operators: libraries that graphs call, opened before the first graph that may need them."""

from __future__ import annotations

import hashlib
import threading
from inspect import isfunction
from pathlib import Path
from types import ModuleType

from tritonpy.plugin import Internal, Model, TritonError, Unavailable

from tritonpy_backend_tensorflow.framework import Framework

PARAMETER = "model_operations { op_library_filename }"

_lock = threading.Lock()  # guards _opened
_opened: dict[str, Path] = {}
"""Libraries of this process by a hash of their content.

TensorFlow opens one from two paths as well, and then no operator of it can be used any more.
"""


def open_libraries(model: Model, framework: Framework) -> None:
    """Open the libraries of all models, and those that the configuration of this one names.

    Names are relative to the model's directory. Operators belong to the process and cannot be taken out of it
    again, so each library is opened once, also where several models have a copy of it.

    Raises:
        TritonError: one is not there, or is no library of operators for this TensorFlow.
    """
    names = model.config.get("model_operations", {}).get("op_library_filename", ())
    for path in framework.op_libraries:
        _open(framework, path, "--backend-config=tensorflow,op-library")
    for name in names:
        _open(framework, (model.directory / name).resolve(), f"'op_library_filename' of model '{model.name}'")


def operator_error(exc: TritonError, model: Model) -> TritonError:
    """The same error, with the parameter that mends it where an operator is missing."""
    text = str(exc)
    if "Op type not registered" not in text:
        return exc
    return type(exc)(f"{text}; a library with the operator is named by {PARAMETER} of model '{model.name}'")


def _open(framework: Framework, path: Path, origin: str) -> None:
    if not path.is_file():
        raise Unavailable(f"unable to find '{path}', which {origin} names")
    with _lock:
        key = _content_hash(path)
        if key in _opened:
            return
        try:
            module = framework.tf.load_op_library(str(path))
        except Exception as exc:  # of the dynamic linker or of TensorFlow
            raise Internal(
                f"'{path}', which {origin} names, is no library of operators for TensorFlow "
                f"{framework.tf.__version__}: {type(exc).__name__}: {getattr(exc, 'message', '') or exc}"
            ) from exc
        if not _has_operators(module):
            raise Internal(f"'{path}', which {origin} names, registers no operator")
        _opened[key] = path


def _has_operators(module: ModuleType) -> bool:
    """True if the module that TensorFlow made of a library has functions of its own, one an operator."""
    return any(
        isfunction(value) and not name.startswith("_") and value.__module__ == module.__name__
        for name, value in vars(module).items()
    )


def _content_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
