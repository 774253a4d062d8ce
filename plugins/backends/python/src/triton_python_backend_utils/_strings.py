"""Text on its way out.

The wire form of a BYTES tensor is, for each element, a little-endian uint32 length and that many bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Union

import numpy as np

from ._errors import TritonModelException

_LENGTH = struct.Struct("<I")

Elements = np.ndarray[Any, Any]  # Any: objects or byte strings of any length
WireForm = Union[bytes, bytearray, memoryview]  # noqa: UP007 (evaluated, also by Python 3.9)


def serialize_byte_tensor(input_tensor: Elements) -> bytes:
    """Join the elements of a tensor, in row-major order, into their wire form.

    Args:
        input_tensor: an array of `bytes`; a `str` is encoded as UTF-8, anything else by way of its `str()`.

    Raises:
        TritonModelException: the array holds numbers.
    """
    if input_tensor.dtype.kind not in "OSU":
        raise TritonModelException(f"expected an array of bytes, str or objects, got {input_tensor.dtype}")
    pack = _LENGTH.pack
    parts = []
    for element in input_tensor.reshape(-1).tolist():
        data = element if type(element) is bytes else str(element).encode()
        parts.append(pack(len(data)))
        parts.append(data)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: WireForm) -> Elements:
    """Split the wire form of a BYTES tensor into a one-dimensional array of `bytes`.

    Raises:
        TritonModelException: a length runs past the end.
    """
    elements: list[bytes] = []
    offset, size = 0, len(encoded_tensor)
    while offset < size:
        start = offset + 4
        if start > size:
            raise TritonModelException(
                f"incomplete string length indicator: "
                f"expecting 4 bytes but only {size - offset} bytes available"
            )
        offset = start + _LENGTH.unpack_from(encoded_tensor, start - 4)[0]
        if offset > size:
            raise TritonModelException(
                f"incomplete string data, expecting string of length {offset - start} "
                f"but only {size - start} bytes available"
            )
        elements.append(bytes(encoded_tensor[start:offset]))
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def printable(text: str) -> str:
    """Text fit for any client: halves of surrogate pairs, as in odd file names, are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
