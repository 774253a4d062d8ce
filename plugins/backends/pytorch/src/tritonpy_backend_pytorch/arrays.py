"""Tensors of PyTorch made from arrays of requests, and back, without a copy where memory allows it."""

from __future__ import annotations

import numpy as np
import torch
from tritonpy.plugin import DATATYPES, Array, Internal

DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP32": torch.float32,
    "FP64": torch.float64,
}
"""The type of tensors by the protocol's word for it."""

DATATYPE_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
"""The protocol's word for a type of tensors."""


UNDECODABLE = "surrogateescape"
"""How strings of Python hold bytes that are not UTF-8, so that these come out again as they went in."""


def to_tensor(array: Array, datatype: str) -> torch.Tensor:
    """Wrap an array of numbers; the tensor shares its memory, so the model must not write to it."""
    if array.size == 0:
        return torch.zeros(array.shape, dtype=DTYPES[datatype])
    wanted = DATATYPES[datatype].numpy
    if array.dtype != wanted:
        array = array.astype(wanted)  # the other byte order
    # `from_numpy` is quicker, and warns of arrays that are only for reading, as those of requests are.
    tensor = torch.from_numpy(array) if array.flags.writeable else torch.from_dlpack(array)
    return tensor.view(torch.bfloat16) if datatype == "BF16" else tensor


def to_array(tensor: torch.Tensor) -> Array:
    """The elements of a tensor, in its memory if that is the host's; BF16 as `uint16` with the raw bits.

    Raises:
        Internal: it is sparse or quantised.
    """
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    try:
        array: Array = tensor.numpy()
    except (RuntimeError, TypeError):
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Internal(
                f"a tensor of {tensor.layout} and {tensor.dtype} has no form in the protocol"
            ) from None
        array = tensor.numpy(force=True)  # on a device, with gradients, or only conjugated by name
    return array


def datatype_of(tensor: torch.Tensor) -> str:
    """The protocol's word for the type of a tensor, or "" where it has none."""
    return DATATYPE_NAMES.get(tensor.dtype, "")


def strings_to_array(strings: list[str] | list[bytes]) -> Array:
    """An array of the strings of a model, as `bytes`."""
    array = np.empty(len(strings), object)
    array[:] = [each.encode(errors=UNDECODABLE) if isinstance(each, str) else each for each in strings]
    return array
