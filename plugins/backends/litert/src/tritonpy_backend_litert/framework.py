"""LiteRT as it is installed here, and what `--backend-config` says about all models."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tritonpy.plugin import Backend, BlockPool, Internal, TritonError, Unavailable, default_max_batch_size

_MISSING_OPERATORS = {
    "Select TensorFlow op": "the model has operators of TensorFlow itself (SELECT_TF_OPS), which LiteRT's "
    "package does not bring; serve the SavedModel with the backend 'tensorflow'",
    "Encountered unresolved custom op": "the model has operators that LiteRT's package does not bring",
}
"""What LiteRT says of them, and what is said in front of that."""


@dataclass(frozen=True, slots=True)
class Framework:
    """The part of LiteRT that all models of this process share.

    Attributes:
        module: `ai_edge_litert.interpreter`.
        default_max_batch_size: what auto-complete sets for models that can batch; 0 disables it.
        bfloat16: numpy's type for BF16, which LiteRT knows where `ml_dtypes` is installed; else None.
        pool: where batches are gathered.
    """

    module: ModuleType
    default_max_batch_size: int
    bfloat16: Any = None  # Any: a class of an extension
    pool: BlockPool = field(default_factory=BlockPool)


def start_framework(backend: Backend) -> Framework:
    """Import LiteRT and read the settings given with `--backend-config`.

    Raises:
        Unavailable: it is not installed; says which command mends that.
        InvalidArg: a setting has a value that it cannot have.
    """
    return Framework(_import_litert(), default_max_batch_size(backend), _import_bfloat16())


def framework_error(exc: Exception, what: str = "") -> TritonError:
    """The error that a client sees for an exception of LiteRT; `what` is put in front of its text."""
    text = str(exc).strip()
    advice = next((said for sign, said in _MISSING_OPERATORS.items() if sign in text), "")
    return Internal(f"{what}{advice}: {text}" if advice else f"{what}{text}")


def lacks_operators(exc: Exception) -> bool:
    """True for the exception of a model that has operators which LiteRT does not have."""
    return any(sign in str(exc) for sign in _MISSING_OPERATORS)


def _import_litert() -> ModuleType:
    try:
        return importlib.import_module("ai_edge_litert.interpreter")
    except ImportError as exc:
        if find_spec("ai_edge_litert") is not None:
            raise Unavailable(f"backend 'litert': ai-edge-litert is installed but fails: {exc}") from exc
        raise Unavailable(
            "backend 'litert' needs LiteRT, which is not installed: "
            "pip install 'tritonpy-backend-litert[cpu]'"
        ) from exc


def _import_bfloat16() -> Any:
    """The type; to import it is what makes numpy, and LiteRT with it, know the name."""
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        return None
