"""DLPack by hand: numpy cannot exchange BF16, and refuses a capsule without the object it came from.

The structures below are those of `dlpack.h`, version 0.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from ._datatypes import DTYPES
from ._errors import TritonModelException

_CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_BFLOAT = 4
_DATATYPES = {
    (0, 8): "INT8",
    (0, 16): "INT16",
    (0, 32): "INT32",
    (0, 64): "INT64",
    (1, 8): "UINT8",
    (1, 16): "UINT16",
    (1, 32): "UINT32",
    (1, 64): "UINT64",
    (2, 16): "FP16",
    (2, 32): "FP32",
    (2, 64): "FP64",
    (_BFLOAT, 16): "BF16",
    (6, 8): "BOOL",
}

# Capsules keep pointers to their names, so the names must live as long as the process.
_FRESH = b"dltensor"
_USED = b"used_dltensor"

Array = np.ndarray[Any, Any]  # Any: the element type is known only at run time


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimension_count", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_pointer.restype = ctypes.c_void_p
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)


def take(source: object) -> tuple[Array, str]:
    """The elements behind a tensor or capsule as an array, and their datatype; see `Tensor.from_dlpack`."""
    capsule: Any = source  # Any: an opaque object of the C API
    if hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__"):
        device_type, device_id = source.__dlpack_device__()
        if device_type not in _CPU_DEVICES:
            raise TritonModelException(
                f"the tensor is on DLPack device ({int(device_type)}, {device_id}); copy it to the CPU first"
            )
        capsule = source.__dlpack__()
    if not _is_capsule(capsule, _FRESH):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule "
            "or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    managed = _Managed.from_address(_pointer(capsule, _FRESH))
    tensor = managed.tensor
    datatype = _DATATYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if datatype is None:
        raise TritonModelException(
            f"DLPack type (code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes) is not supported"
        )
    if tensor.device_type not in _CPU_DEVICES:
        raise TritonModelException(
            f"the capsule is on DLPack device ({tensor.device_type}, {tensor.device_id}); "
            f"copy the tensor to the CPU first"
        )
    shape = tuple(tensor.shape[: tensor.dimension_count])
    if tensor.strides and not _is_contiguous(shape, tensor.strides):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
            "supported."
        )
    _rename(capsule, _USED)  # it is ours to delete from here on
    return _array_over(managed, shape, DTYPES[datatype]), datatype


def _is_contiguous(shape: tuple[int, ...], strides: Any) -> bool:  # Any: a ctypes pointer
    expected = 1
    for index in reversed(range(len(shape))):
        if shape[index] != 1 and strides[index] != expected:
            return 0 in shape
        expected *= shape[index]
    return True


def _array_over(managed: _Managed, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    count = 1
    for dimension in shape:
        count *= dimension
    address = ctypes.addressof(managed)
    if count == 0:
        if managed.deleter:
            managed.deleter(address)
        return np.empty(shape, dtype)
    start = managed.tensor.data + managed.tensor.byte_offset
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(start)
    if managed.deleter:
        weakref.finalize(memory, managed.deleter, address).atexit = False
    return np.frombuffer(memoryview(memory), dtype).reshape(shape)


def give(array: Array, datatype: str, options: dict[str, Any]) -> object:  # Any: the consumer's options
    """A capsule that keeps `array` alive; see `Tensor.to_dlpack`."""
    if datatype == "BYTES":
        raise TritonModelException("DLPack does not have support for string tensors.")
    if datatype == "BF16":
        return export(array, _BFLOAT, 16)
    if not array.flags.writeable:
        array = array.copy()  # numpy gives out nothing that must not be written to
    return array.__dlpack__(**options)


_given: dict[int, tuple[object, ...]] = {}
"""What the structures of capsules that are out there point to, by the structure's address."""


def _forget(address: int) -> None:
    _given.pop(address, None)


def _drop(capsule: int) -> None:
    # The object is being freed, so it must not become a Python object again: only its address is used.
    if _is_capsule_at(capsule, _FRESH):
        _forget(_pointer_at(capsule, _FRESH))


_delete = _Deleter(_forget)
_drop_capsule = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop)
_is_capsule_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def export(array: Array, code: int, bits: int) -> object:
    """A capsule over the bytes of `array`, which it keeps alive, as elements of any DLPack type."""
    managed = _Managed()
    shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    tensor = managed.tensor
    tensor.data = array.ctypes.data
    tensor.device_type = 1
    tensor.dimension_count = array.ndim
    tensor.code, tensor.bits, tensor.lanes = code, bits, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _delete
    address = ctypes.addressof(managed)
    _given[address] = (managed, shape, array)
    return _new_capsule(address, _FRESH, ctypes.cast(_drop_capsule, ctypes.c_void_p).value)
