"""Tensors as a model handles them."""

import ctypes

import numpy as np
import triton_python_backend_utils as pb_utils


def outcome(function):
    """What a call returns, or the type and text of what it raises."""
    try:
        return function()
    except Exception as exc:
        return [type(exc).__name__, str(exc)]


def accessors(request):
    tensor = pb_utils.Tensor("T", np.zeros((2, 3), np.float32))
    return [tensor.name(), list(tensor.shape()), tensor.is_cpu(), str(tensor.as_numpy().dtype)]


def triton_dtype(request):
    return outcome(lambda: int(pb_utils.Tensor("T", np.zeros(1, np.float32)).triton_dtype()))


def input_is_writable(request):
    array = request.inputs()[0].as_numpy()
    return [bool(array.flags.writeable), array.dtype.name, list(array.shape), request.inputs()[0].is_cpu()]


def dlpack_of_every_datatype(request):
    """Through a capsule and back, and through numpy's own import."""
    found = {}
    for kind in ("bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
        array = np.array([0, 1, 1], kind)
        tensor = pb_utils.Tensor("T", array)
        back = pb_utils.Tensor.from_dlpack("U", tensor.to_dlpack())
        again = pb_utils.Tensor.from_dlpack("V", tensor)
        imported = outcome(lambda tensor=tensor: np.from_dlpack(tensor).tolist())
        found[kind] = [
            [back.name(), back.as_numpy().dtype.str[1:], back.as_numpy().tolist()],
            again.as_numpy().tolist(),
            imported,
        ]
    return found


def from_another_framework(request):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = pb_utils.Tensor.from_dlpack("T", Foreign(array))
    capsule = pb_utils.Tensor.from_dlpack("U", Foreign(array).__dlpack__())
    return [[each.name(), list(each.shape()), each.as_numpy().tolist()] for each in (tensor, capsule)]


def dlpack_device(request):
    return list(pb_utils.Tensor("T", np.zeros(1, np.float32)).__dlpack_device__())


def dlpack_refusals(request):
    square = np.arange(6, dtype=np.float32).reshape(2, 3)
    return {
        "transposed": refusal(Foreign(square.T)),
        "every second column": refusal(Foreign(square[:, ::2])),
        "one row": refusal(Foreign(square[:1])),
        "a list": refusal([1, 2]),
        "None": refusal(None),
        "no name": refusal(Foreign(square), name=""),
        "complex": refusal(Foreign(np.zeros(1, np.complex64), code=5, bits=64)),
        "four-bit": refusal(Foreign(square, bits=4)),
        "two lanes": refusal(Foreign(square, lanes=2)),
        "on another device": refusal(Foreign(square, device=(7, 0))),
    }


def refusal(source, name="T"):
    return outcome(lambda: list(pb_utils.Tensor.from_dlpack(name, source).shape()))


def dlpack_of_texts(request):
    return outcome(lambda: str(pb_utils.Tensor("T", np.array([b"a"], object)).to_dlpack()))


def used_capsule(request):
    capsule = pb_utils.Tensor("T", np.zeros(1, np.float32)).to_dlpack()
    kept = pb_utils.Tensor.from_dlpack("T", capsule)
    return [kept.name(), outcome(lambda: pb_utils.Tensor.from_dlpack("T", capsule).name())]


def from_numpy_by_dlpack(request):
    return pb_utils.Tensor.from_dlpack("T", np.arange(4, dtype=np.float32)).as_numpy().tolist()


def array_of_a_dropped_tensor(request):
    array = pb_utils.Tensor("T", np.full(1000, 3, np.float32)).as_numpy()
    return float(array.sum())


def input_tensors_in_a_response(request):
    """An input handed on as an output keeps its name."""
    tensor = request.inputs()[0]
    response = pb_utils.InferenceResponse([tensor])
    return [each.name() for each in response.output_tensors()]


def names_of_types(request):
    numbers = [pb_utils.triton_to_numpy_type(number) for number in range(1, 14)]
    return {
        "triton_to_numpy_type": [np.dtype(kind).name for kind in numbers],
        "BF16": str(pb_utils.triton_to_numpy_type(14)),
        "numpy_to_triton_type": [pb_utils.numpy_to_triton_type(kind) for kind in numbers],
        "of byte strings": pb_utils.numpy_to_triton_type(np.bytes_),
        "triton_string_to_numpy": [
            np.dtype(pb_utils.triton_string_to_numpy(f"TYPE_{name}")).name
            for name in ("BOOL", "UINT8", "INT64", "FP16", "FP32", "FP64", "STRING")
        ],
        "unknown": outcome(lambda: pb_utils.triton_string_to_numpy("TYPE_NOPE")),
        "string of BF16": outcome(lambda: str(pb_utils.triton_string_to_numpy("TYPE_BF16"))),
    }


def packed_texts(request):
    array = np.array([b"a", "\u00e9", 3, b""], object)
    packed = pb_utils.serialize_byte_tensor(array)
    return [list(bytes(packed)), [element.decode() for element in pb_utils.deserialize_bytes_tensor(packed)]]


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
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


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)

_CODES = {"i": 0, "u": 1, "f": 2}
_KEPT = []  # what was given out, for as long as the process lives
_delete_nothing = _Deleter(lambda _: None)  # the real server calls it without asking whether there is one


class Foreign:
    """A tensor as another framework would hold it, over the memory of an array."""

    def __init__(self, array, code=None, bits=None, lanes=1, device=(1, 0)):
        self._array = array
        self._type = (
            _CODES[array.dtype.kind] if code is None else code,
            array.dtype.itemsize * 8 if bits is None else bits,
            lanes,
        )
        self._device = device

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, stream=None):
        array = self._array
        managed = _Managed()
        tensor = managed.tensor
        tensor.data, tensor.ndim = array.ctypes.data, array.ndim
        tensor.device_type, tensor.device_id = self._device
        tensor.code, tensor.bits, tensor.lanes = self._type
        tensor.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor.strides = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
        managed.deleter = _delete_nothing
        _KEPT.append((managed, array))
        return _new_capsule(ctypes.addressof(managed), b"dltensor", None)


def brain(*bits):
    """A BF16 tensor, for which numpy has no type."""
    return Foreign(np.array(bits, np.uint16), code=4)


def given(tensor, count):
    """Type code and bits of what a BF16 tensor gives to DLPack."""
    capsule = tensor.to_dlpack()
    out = _Managed.from_address(_pointer(capsule, b"dltensor")).tensor
    bits = (ctypes.c_uint16 * count).from_address(out.data + out.byte_offset)
    return [out.code, out.bits, out.lanes, list(bits)]


def brain_floats(request):
    tensor = pb_utils.Tensor.from_dlpack("T", brain(0x3F80, 0x4000))
    return {
        "shape": list(tensor.shape()),
        "given": given(tensor, 2),
        "as_numpy": outcome(lambda: tensor.as_numpy().tolist()),
    }


def brain_floats_to_another_model(request):
    asking = pb_utils.InferenceRequest(
        model_name="echo",
        requested_output_names=["BF16_OUT"],
        inputs=[pb_utils.Tensor.from_dlpack("BF16_IN", brain(0x3F80, 0x4000))],
    )
    [output] = asking.exec().output_tensors()
    return given(output, 2)
