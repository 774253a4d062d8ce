"""Elements of tensors as text, in the form that Triton's trace files have."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tritonpy.errors import InvalidArg
from tritonpy.tensor import Array, Tensor
from tritonpy.tracing.trace import TracedTensor


def tensor_text(tensor: TracedTensor) -> str:
    """The elements in row-major order, separated by commas.

    Numbers have six significant digits at most, as C++ writes them; BOOL is 0 or 1; BYTES stand in quotes.
    """
    try:
        array = Tensor(tensor.name, tensor.datatype, tensor.shape, tensor.data).numpy()
    except InvalidArg:  # what could not be read, or a model's bytes that do not fit its shape
        return ""
    return ",".join(_elements(tensor.datatype, array.reshape(-1)))


def _elements(datatype: str, array: Array) -> Iterable[str]:
    if datatype == "BYTES":
        return (f'"{element.decode("utf-8", "replace")}"' for element in array.tolist())
    if datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind == "f":
        return map("%g".__mod__, array.tolist())
    if datatype == "BOOL":
        array = array.view(np.uint8)
    return map(str, array.tolist())
