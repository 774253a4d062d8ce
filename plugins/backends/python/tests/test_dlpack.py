from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import _dlpack

DTYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32"]


def bf16(values):
    """The raw bits of `values` as BF16, which is the upper half of FP32."""
    return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def bf16_tensor(name, values):
    """A tensor whose datatype really is BF16, as another framework would give it."""
    capsule = _dlpack.give(bf16(values), "BF16", {})
    return pb_utils.Tensor.from_dlpack(name, capsule)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_pass_to_and_fro_without_a_copy(dtype):
    array = np.arange(6, dtype=dtype).reshape(2, 3)

    tensor = pb_utils.Tensor.from_dlpack("IN", pb_utils.Tensor("X", array))

    assert tensor.as_numpy().dtype == array.dtype
    assert tensor.as_numpy().tolist() == array.tolist()
    assert np.shares_memory(tensor.as_numpy(), array)


def test_a_tensor_is_made_from_any_exporter_and_from_its_bare_capsule():
    array = np.arange(3, dtype=np.float32)

    tensors = [pb_utils.Tensor.from_dlpack("IN", source) for source in (array, array.__dlpack__())]

    assert [tensor.as_numpy().tolist() for tensor in tensors] == [[0, 1, 2], [0, 1, 2]]


def test_numpy_takes_a_tensor():
    tensor = pb_utils.Tensor("IN", np.arange(3, dtype=np.float32))

    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
    assert tensor.__dlpack_device__() == (1, 0)


def test_an_array_that_must_not_be_written_to_is_given_out_as_a_copy():
    array = np.frombuffer(bytes(4), np.uint8)

    taken = np.from_dlpack(pb_utils.Tensor("IN", array))

    assert taken.tolist() == [0, 0, 0, 0]
    assert not np.shares_memory(taken, array)


def test_the_exporter_is_kept_until_the_tensor_is_gone():
    class Owner(np.ndarray):
        pass

    array = np.arange(4, dtype=np.float32).view(Owner)
    alive = weakref.ref(array)
    tensor = pb_utils.Tensor.from_dlpack("IN", array)
    view = tensor.as_numpy()[1:]

    del array, tensor
    gc.collect()
    assert alive() is not None
    assert view.tolist() == [1, 2, 3]

    del view
    gc.collect()
    assert alive() is None


def test_an_empty_array_gives_its_exporter_back_at_once():
    tensor = pb_utils.Tensor.from_dlpack("IN", np.zeros((2, 0), np.int32))

    assert tensor.shape() == [2, 0]


def test_bf16_comes_as_raw_bits_and_leaves_as_bf16():
    tensor = bf16_tensor("IN", [[1.0, -2.5]])

    assert pb_utils.triton_to_numpy_type(tensor.triton_dtype()) is None
    assert tensor.as_numpy().dtype == np.uint16
    again = pb_utils.Tensor.from_dlpack("OUT", tensor)
    assert again.triton_dtype() == tensor.triton_dtype() == 14
    assert again.shape() == [1, 2]
    assert np.shares_memory(again.as_numpy(), tensor.as_numpy())


def test_other_frameworks_read_our_capsules_as_we_mean_them():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    alive = weakref.ref(array)

    class Exporter:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **_):
            return _dlpack.export(self.array, 2, 32)  # as FP32, which numpy knows

        def __dlpack_device__(self):
            return 1, 0

    taken = np.from_dlpack(Exporter(array))
    assert taken.tolist() == array.tolist()
    assert np.shares_memory(taken, array)

    del array
    gc.collect()
    assert alive() is not None
    del taken
    gc.collect()
    assert alive() is None


def test_a_bf16_capsule_nobody_takes_frees_its_tensor():
    array = bf16([1.0])
    alive = weakref.ref(array)
    capsule = _dlpack.give(array, "BF16", {})

    del array
    assert alive() is not None
    del capsule
    gc.collect()

    assert alive() is None


def test_elements_in_another_order_are_refused():
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T

    with pytest.raises(pb_utils.TritonModelException, match=r"^DLPack tensor is not contiguous"):
        pb_utils.Tensor.from_dlpack("IN", array)


def test_a_dimension_of_one_element_may_have_any_stride():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)[:1]

    assert pb_utils.Tensor.from_dlpack("IN", array).as_numpy().tolist() == [[0, 1, 2]]


def test_a_datatype_the_protocol_does_not_know_is_refused():
    with pytest.raises(pb_utils.TritonModelException, match="code 5, 64 bits, 1 lanes"):
        pb_utils.Tensor.from_dlpack("IN", np.zeros(2, np.complex64))


@pytest.mark.parametrize("source", [[1, 2], None, "text"])
def test_anything_else_is_refused(source):
    with pytest.raises(pb_utils.TritonModelException, match=r"^Provided tensor is not supported"):
        pb_utils.Tensor.from_dlpack("IN", source)


def test_a_tensor_on_another_device_is_refused():
    class OnGpu:
        def __dlpack__(self):
            raise AssertionError("not asked")

        def __dlpack_device__(self):
            return 2, 1

    with pytest.raises(pb_utils.TritonModelException, match=r"device \(2, 1\); copy it to the CPU first"):
        pb_utils.Tensor.from_dlpack("IN", OnGpu())


def test_a_used_capsule_is_refused():
    capsule = np.arange(3).__dlpack__()
    pb_utils.Tensor.from_dlpack("IN", capsule)

    with pytest.raises(pb_utils.TritonModelException, match=r"^Provided tensor is not supported"):
        pb_utils.Tensor.from_dlpack("IN", capsule)


def test_strings_cannot_be_given_out():
    tensor = pb_utils.Tensor("IN", np.array([b"a"], object))

    with pytest.raises(
        pb_utils.TritonModelException, match=r"^DLPack does not have support for string tensors"
    ):
        tensor.to_dlpack()


def test_to_dlpack_makes_a_capsule():
    capsule = pb_utils.Tensor("IN", np.arange(3)).to_dlpack()

    is_capsule = ctypes.pythonapi.PyCapsule_IsValid
    assert is_capsule(ctypes.py_object(capsule), ctypes.c_char_p(b"dltensor"))
