"""Requests from arrays, and the arrays that a driven model makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tritonpy_sdk.testing.driver import DrivenModel


def request_of(
    rows: int = 1,
    outputs: Sequence[str] | None = None,
    *,
    named: Mapping[str, ArrayLike | Tensor] | None = None,
    **inputs: ArrayLike | Tensor,
) -> InferRequest:
    """Make a request.

    Args:
        rows: how many the server has counted.
        outputs: those that are asked for; None for all.
        named: inputs whose names are no identifiers, or those of arguments.
        **inputs: the others by name.
    """
    tensors = {
        name: value if isinstance(value, Tensor) else Tensor.from_numpy(name, np.asarray(value))
        for name, value in {**inputs, **(named or {})}.items()
    }
    request = InferRequest("net", tensors, requested_outputs=None if outputs is None else tuple(outputs))
    request.batch_size = rows
    return request


def ask(
    model: DrivenModel,
    rows: int = 1,
    outputs: Sequence[str] | None = None,
    instance: int = 0,
    **inputs: Any,  # Any: see `request_of`
) -> dict[str, Any]:  # Any: numbers, strings or lists of them
    """Have a model answer one request; returns its outputs as lists.

    Args:
        model: a loaded one.
        rows: see `request_of`.
        outputs: see `request_of`.
        instance: the index of the one that executes.
        **inputs: see `request_of`.

    Raises:
        TritonError: the request is answered with it.
    """
    (answer,) = model.execute([request_of(rows, outputs, **inputs)], instance)
    if answer.only.error is not None:
        raise answer.only.error
    return {output.name: output.numpy().tolist() for output in answer.only.outputs}
