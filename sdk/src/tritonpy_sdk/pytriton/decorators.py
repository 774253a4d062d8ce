"""`pytriton.decorators`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tritonpy.tensor import Array

from tritonpy_sdk.functions.context import FunctionContext as TritonContext
from tritonpy_sdk.functions.decorators import (
    ConstantPadder,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    triton_context,
)
from tritonpy_sdk.functions.request import Request

InferenceRequest: TypeAlias = Request
InferenceRequests: TypeAlias = list[Request]
InferenceResult: TypeAlias = Mapping[str, Array]
InferenceResults: TypeAlias = list[InferenceResult]
InputNames: TypeAlias = list[str]


def get_inference_request_batch_size(inference_request: Request) -> int:
    """Rows of the inputs of a request."""
    return inference_request.batch_size


__all__ = [
    "ConstantPadder",
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "TritonContext",
    "batch",
    "fill_optionals",
    "first_value",
    "get_inference_request_batch_size",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]
