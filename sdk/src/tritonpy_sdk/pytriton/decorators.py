"""`pytriton.decorators`."""

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

__all__ = [
    "ConstantPadder",
    "TritonContext",
    "batch",
    "fill_optionals",
    "first_value",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]
