"""Custom operators: libraries that graphs call, opened before the first graph that may need them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from inspect import isfunction
from types import ModuleType

from tritonpy.plugin import Model, OpenOpLibraries, OpLibrary, TritonError

PARAMETER = "model_operations { op_library_filename }"


def open_libraries(libraries: Iterable[OpLibrary], tf: ModuleType) -> None:
    """Open libraries of operators.

    Args:
        libraries: all that are needed; those which this process has already are left as they are.
        tf: the module `tensorflow`.

    Raises:
        TritonError: one is not there, or is no library of operators for this TensorFlow.
    """
    for library in libraries:
        _opened(tf).open(library)


def operator_error(exc: TritonError, model: Model) -> TritonError:
    """The same error, with the parameter that mends it where an operator is missing."""
    if "Op type not registered" not in exc.message:
        return exc
    return TritonError(
        f"{exc.message}; a library with the operator is named by {PARAMETER} of model '{model.name}', or by "
        "a plugin",
        exc.code,
    )


@cache  # for the process: a framework that is started anew finds what was opened before
def _opened(tf: ModuleType) -> OpenOpLibraries:
    return OpenOpLibraries(f"TensorFlow {tf.__version__}", partial(_load, tf))


def _load(tf: ModuleType, path: str) -> bool:
    """True if the module that TensorFlow makes of a library has functions of its own, one an operator."""
    module = tf.load_op_library(path)
    return any(
        isfunction(value) and not name.startswith("_") and value.__module__ == module.__name__
        for name, value in vars(module).items()
    )
