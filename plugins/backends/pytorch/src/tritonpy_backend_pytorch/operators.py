"""Custom operators: libraries that a model's file calls, opened before it is loaded."""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from pathlib import Path

import torch
from tritonpy.plugin import Model, OpenOpLibraries, OpLibrary, TritonError

PARAMETER = "model_operations { op_library_filename }"

_MISSING = ("Unknown builtin op", "is not known to PyTorch", "Could not find schema for", "'_OpNamespace'")
"""Words for a missing operator: of TorchScript, an exported program, an AOTInductor package, and Python."""

_KERNELS = ("CPU", "CUDA")

_files: list[dict[str, object]] = []
"""What Python files have made: an operator lives as long as its `torch.library.Library`."""


def open_libraries(libraries: Iterable[OpLibrary]) -> None:
    """Open libraries of operators: shared objects, and Python files that use `torch.library`.

    Raises:
        TritonError: one is not there, cannot be opened, or has no operators.
    """
    for library in libraries:
        _LIBRARIES.open(library)


def operator_error(exc: TritonError, model: Model) -> TritonError:
    """The same error, with the parameter that mends it where an operator is missing."""
    if not any(words in exc.message for words in _MISSING):
        return exc
    return TritonError(
        f"{exc.message.strip().rstrip('.')}; a library with the operator is named by {PARAMETER} of model "
        f"'{model.name}', or by a plugin",
        exc.code,
    )


def _load(path: str) -> bool:
    before = _registrations()
    if Path(path).suffix == ".py":
        _files.append(runpy.run_path(path))
    else:
        try:
            torch.ops.load_library(path)
        except OSError as exc:  # whose text is the path; that of the dynamic linker lies behind it
            raise exc.__cause__ or exc from None
    return _registrations() != before


def _registrations() -> tuple[int, ...]:
    """How many operators, kernels and classes the process knows."""
    registry = torch._C
    kernels = [len(registry._dispatch_get_registrations_for_dispatch_key(key)) for key in _KERNELS]
    operators = len(registry._dispatch_get_all_op_names())
    return (operators, len(registry._jit_get_custom_class_schemas()), *kernels)


_LIBRARIES = OpenOpLibraries(f"PyTorch {torch.__version__}", _load)
