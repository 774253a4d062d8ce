"""A named tensor, and the wire form of BYTES elements."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritonpy.buffers import HOST_TYPES, Buffer, MemoryType, byte_view
from tritonpy.datatypes import DATATYPES, datatype_of
from tritonpy.errors import InvalidArg

Array = npt.NDArray[Any]  # Any: the element type is the tensor's datatype, known only at run time
"""The elements of a tensor for numpy; those of BYTES are `bytes` in an array of objects."""

_LENGTH = struct.Struct("<I")


class Tensor:
    """A name, a datatype, a shape and the bytes, which stay where they arrived until they are needed.

    Attributes:
        name: the input's or output's name in the model configuration.
        datatype: protocol name, such as `FP32` or `BYTES`.
        shape: all dimensions, batch dimension first when the model batches.
    """

    __slots__ = ("_array", "_buffer", "datatype", "name", "shape")

    def __init__(self, name: str, datatype: str, shape: Sequence[int], buffer: Buffer) -> None:
        """Wrap bytes in the protocol's binary form: little endian, row major, BYTES length-prefixed."""
        self.name = name
        self.datatype = datatype
        self.shape = tuple(shape)
        self._buffer: Buffer | None = buffer
        self._array: Array | None = None

    @classmethod
    def from_numpy(cls, name: str, array: Array, datatype: str | None = None) -> Tensor:
        """Wrap an array of numbers without copying it; strings are packed at once.

        Args:
            name: the tensor's name.
            array: elements; strings and objects become BYTES, numbers of another byte order are converted.
            datatype: needed for BF16 only (an array of `uint16` holding the raw bits).

        Raises:
            InvalidArg: the protocol has no type for this dtype, or BF16 was asked for and these are no bits.
        """
        dtype = array.dtype
        if datatype is None:
            datatype = datatype_of(dtype)
            if datatype is None:
                raise InvalidArg(f"tensor '{name}': the protocol has no datatype for numpy dtype '{dtype}'")
        if datatype == "BYTES":
            # Packed here, on the model's thread and not on the loop; and a reader in the same process gets
            # what a client would get: `bytes`, for strings of any kind.
            return cls(name, datatype, array.shape, pack_bytes(array))
        wanted = DATATYPES[datatype].numpy
        if dtype is not wanted and dtype != wanted:  # the usual dtypes are singletons
            if datatype == "BF16":
                raise InvalidArg(
                    f"tensor '{name}': datatype BF16 wants numpy dtype 'uint16' holding the raw bits, "
                    f"got '{dtype}'"
                )
            array = array.astype(wanted)
        tensor = cls.__new__(cls)
        tensor.name = name
        tensor.datatype = datatype
        tensor.shape = array.shape
        tensor._buffer = None
        tensor._array = array
        return tensor

    def renamed(self, name: str) -> Tensor:
        """The same bytes under another name."""
        tensor = Tensor.__new__(Tensor)
        tensor.name = name
        tensor.datatype = self.datatype
        tensor.shape = self.shape
        tensor._buffer = self._buffer
        tensor._array = self._array
        return tensor

    def reshaped(self, shape: Sequence[int]) -> Tensor:
        """The same bytes in another shape with as many elements."""
        tensor = self.renamed(self.name)
        tensor.shape = tuple(shape)
        if tensor._array is not None:
            tensor._array = tensor._array.reshape(tensor.shape)
        return tensor

    @property
    def buffer(self) -> Buffer:
        """The bytes where they are: host memory of this process or a location to open."""
        if self._buffer is None:
            assert self._array is not None  # a tensor has a buffer or an array
            self._buffer = byte_view(self._array)
        return self._buffer

    @property
    def memory_type(self) -> MemoryType:
        """The memory type of the bytes; host memory unless the buffer is a location of another type."""
        buffer = self._buffer
        return MemoryType.CPU if buffer is None or isinstance(buffer, HOST_TYPES) else buffer.memory_type

    @property
    def byte_size(self) -> int:
        """Size of the wire form in bytes."""
        buffer = self.buffer
        if isinstance(buffer, bytes | bytearray):
            return len(buffer)
        return buffer.nbytes if isinstance(buffer, memoryview | np.ndarray) else buffer.byte_size

    @property
    def element_count(self) -> int:
        """Product of the shape; 1 for a scalar, 0 when any dimension is 0."""
        return prod(self.shape)

    def wire(self) -> bytes | bytearray | memoryview:
        """The wire form as host bytes, opened if the buffer is a location; a view, not a copy."""
        buffer = self.buffer
        if isinstance(buffer, np.ndarray):
            return byte_view(buffer)
        return buffer if isinstance(buffer, bytes | bytearray | memoryview) else buffer.host_view()

    def numpy(self) -> Array:
        """The elements as an array of `shape`: a view of the received bytes, so do not write to it.

        BYTES become an object array of `bytes`; BF16 becomes `uint16` with the raw bits.

        Raises:
            InvalidArg: BYTES whose lengths do not add up, or a buffer that is not the size the shape needs.
        """
        array = self._array
        if array is None:
            if self.datatype == "BYTES":
                # Unpacked before anything is allocated for them: the shape is only a claim.
                elements = unpack_bytes(self.wire(), self.element_count)
                array = np.empty(len(elements), object)
                array[:] = elements
                array = array.reshape(self.shape)
            else:
                try:
                    array = np.frombuffer(self.wire(), DATATYPES[self.datatype].numpy).reshape(self.shape)
                except ValueError:
                    raise InvalidArg(
                        f"tensor '{self.name}': {self.byte_size} bytes do not hold {self.datatype} "
                        f"of shape {list(self.shape)}"
                    ) from None
            self._array = array
        return array

    def __dlpack__(self, **options: object) -> object:
        """Hand the elements to any DLPack consumer without a copy (numbers and BOOL only)."""
        return self.numpy().__dlpack__(**options)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.datatype}, {list(self.shape)})"


def pack_bytes(array: Array) -> bytes:
    """Join elements into the wire form of a BYTES tensor.

    Args:
        array: `bytes`, `str` (encoded as UTF-8) or anything else (its `str()`), in row-major order.
    """
    parts: list[bytes] = []
    for element in array.reshape(-1).tolist():
        data = element if isinstance(element, bytes) else str(element).encode()
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def unpack_bytes(buffer: bytes | bytearray | memoryview, count: int) -> list[bytes]:
    """Split a BYTES tensor's wire form into its elements.

    Args:
        buffer: `count` elements, each a little-endian uint32 length followed by that many bytes.
        count: product of the tensor's shape; 0 is legal.

    Raises:
        InvalidArg: a length runs past the end, or bytes remain after `count` elements.

    Source: binary tensor data extension of the v2 protocol, "BYTES".
    """
    elements: list[bytes] = []
    offset = 0
    size = len(buffer)
    while len(elements) < count:
        start = offset + 4
        if start > size:
            raise InvalidArg(
                f"incomplete string length indicator: "
                f"expecting 4 bytes but only {size - offset} bytes available"
            )
        offset = start + _LENGTH.unpack_from(buffer, start - 4)[0]
        if offset > size:
            raise InvalidArg(
                f"incomplete string data, expecting string of length {offset - start} "
                f"but only {size - start} bytes available"
            )
        elements.append(bytes(buffer[start:offset]))
    if offset != size:
        raise InvalidArg(f"{size - offset} unexpected bytes after {count} string elements")
    return elements
