"""A named tensor as a model sees it."""

from __future__ import annotations

from typing import Any, Union

import numpy as np

from ._arguments import text
from ._datatypes import BY_DTYPE, DTYPES, NAMES
from ._errors import TritonModelException
from ._strings import deserialize_bytes_tensor

Array = np.ndarray[Any, Any]  # Any: the element type is known only at run time
Received = Union[bytes, Array]  # noqa: UP007 (evaluated, also by Python 3.9)
"""A tensor's wire form: bytes out of a frame, or an array of bytes that lies in shared memory."""


class Tensor:
    """A name and the elements.

    Args:
        name: the input's or output's name in the model configuration.
        numpy_array: the elements; copied only when they are not contiguous in C order. `bytes`, `str` and
            objects make a BYTES tensor; an array of `ml_dtypes.bfloat16` makes a BF16 tensor.

    Raises:
        TypeError: the name is no string, or the elements are no numpy array.
        TritonModelException: no datatype of the protocol fits the array's.
    """

    __slots__ = ("_array", "_datatype", "_name", "_received", "_shape")

    # A tensor has an array, or else what was received and its shape.
    _array: Array | None
    _datatype: str
    _name: str
    _received: Received
    _shape: tuple[int, ...]

    def __init__(self, name: str, numpy_array: Array) -> None:
        if type(name) is not str or not name:
            name = _checked_name(name)
        if type(numpy_array) is not np.ndarray:
            numpy_array = _plain(numpy_array)
        datatype = BY_DTYPE.get(numpy_array.dtype)
        if datatype is None:
            numpy_array, datatype = _adapted(numpy_array)
        if not numpy_array.flags.c_contiguous:
            numpy_array = numpy_array.copy()
        self._name = name
        self._datatype = datatype
        self._array = numpy_array

    @staticmethod
    def from_dlpack(name: str, tensor: object) -> Tensor:
        """Take the elements of another framework's tensor without a copy.

        Args:
            name: the input's or output's name.
            tensor: anything with `__dlpack__` and `__dlpack_device__`, or a DLPack capsule; on the CPU.

        Raises:
            TritonModelException: it is none of these, is not contiguous, lies on another device, or has a
                datatype that the protocol does not know.
        """
        from ._dlpack import take  # late: few models need ctypes

        made = Tensor.__new__(Tensor)
        made._name = _checked_name(name)
        made._array, made._datatype = take(tensor)
        return made

    def name(self) -> str:
        """The tensor's name."""
        return self._name

    def shape(self) -> list[int]:
        """All dimensions; the batch dimension comes first when the model batches."""
        return list(self._shape if self._array is None else self._array.shape)

    def triton_dtype(self) -> int:
        """The number of the datatype in `TRITONSERVER_DataType`; see `triton_to_numpy_type`."""
        return NAMES.index(self._datatype)

    def is_cpu(self) -> bool:
        """True if the elements are in host memory; so far always."""
        return True

    def as_numpy(self) -> Array:
        """The elements as an array, always the same one.

        An input's array may be written to, and is valid for as long as you hold it. BYTES come as an array of
        `bytes` objects; BF16 comes as `uint16`, the raw bits.
        """
        array = self._array
        if array is None:
            received = self._received
            if self._datatype == "BYTES":
                wire = received if isinstance(received, bytes) else received.data
                array = deserialize_bytes_tensor(wire).reshape(self._shape)
            elif isinstance(received, bytes):
                array = np.ndarray(self._shape, DTYPES[self._datatype], bytearray(received))
            else:
                array = received.view(DTYPES[self._datatype]).reshape(self._shape)
            self._array = array
        return array

    def to_dlpack(self) -> object:
        """A DLPack capsule of the elements, without a copy.

        Raises:
            TritonModelException: a BYTES tensor.
        """
        return self.__dlpack__()

    def __dlpack__(self, stream: object = None, **options: Any) -> Any:
        # Any: what newer consumers ask for; and a capsule, whose type has no name before Python 3.13
        from ._dlpack import give

        return give(self.as_numpy(), self._datatype, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._datatype}, {self.shape()})"


def _checked_name(name: object) -> str:
    checked = text("Tensor: name", name)
    if not checked:
        raise TritonModelException("Tensor name cannot be an empty string.")
    return checked


def _plain(array: object) -> Array:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"Tensor: numpy_array must be a numpy.ndarray, got {type(array).__name__}")
    return np.asarray(array)


def _adapted(array: Array) -> tuple[Array, str]:
    dtype = array.dtype
    if dtype.kind in "SU":
        return array, "BYTES"
    if dtype.name == "bfloat16":
        return np.ascontiguousarray(array).view(np.uint16).reshape(array.shape), "BF16"
    native = dtype.newbyteorder("=")
    datatype = BY_DTYPE.get(native)
    if datatype is None:
        raise TritonModelException("NumPy dtype is not supported.")
    return array.astype(native), datatype
