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
    elements = input_tensor.reshape(-1).tolist()
    if set(map(type, elements)) - {bytes}:
        elements = [element if type(element) is bytes else str(element).encode() for element in elements]
    # Lengths and elements by turns; numpy cuts the lengths faster than a loop packs them.
    parts = [b""] * (2 * len(elements))
    parts[0::2] = np.fromiter(map(len, elements), "<u4", len(elements)).view("V4").tolist()
    parts[1::2] = elements
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: WireForm) -> Elements:
    """Split the wire form of a BYTES tensor into a one-dimensional array of `bytes`.

    Raises:
        TritonModelException: a length runs past the end.
    """
    wire = bytes(encoded_tensor)  # slices of it are what is wanted
    elements = _equally_long(wire)
    if elements is None:
        elements = _one_by_one(wire)
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def _equally_long(wire: bytes) -> list[bytes] | None:
    """The elements if all have the length of the first, as is usual; without a loop."""
    size = len(wire)
    if size < 4:
        return None
    length = _LENGTH.unpack_from(wire)[0]
    if length == 0 or size % (4 + length):
        return None
    rows = np.frombuffer(wire, [("length", "<u4"), ("element", f"V{length}")])
    return rows["element"].tolist() if (rows["length"] == length).all() else None


def _one_by_one(wire: bytes) -> list[bytes]:
    elements: list[bytes] = []
    append, unpack = elements.append, _LENGTH.unpack_from
    offset, size = 0, len(wire)
    while offset < size:
        start = offset + 4
        if start > size:
            raise TritonModelException(
                f"incomplete string length indicator: "
                f"expecting 4 bytes but only {size - offset} bytes available"
            )
        offset = start + unpack(wire, offset)[0]
        if offset > size:
            raise TritonModelException(
                f"incomplete string data, expecting string of length {offset - start} "
                f"but only {size - start} bytes available"
            )
        append(wire[start:offset])
    return elements


def printable(text: str) -> str:
    """Text fit for any client: halves of surrogate pairs, as in odd file names, are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
