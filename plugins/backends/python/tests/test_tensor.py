from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_hands_back_the_very_array_it_was_made_from(dtype):
    array = np.ones((2, 3), dtype)

    tensor = pb_utils.Tensor("IN", array)

    assert tensor.as_numpy() is array
    assert tensor.name() == "IN"
    assert tensor.shape() == [2, 3]
    assert tensor.is_cpu()
    assert pb_utils.triton_to_numpy_type(tensor.triton_dtype()) == array.dtype


def test_an_array_in_another_order_is_copied_when_the_tensor_is_made():
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T

    tensor = pb_utils.Tensor("IN", array)
    array[0, 0] = 77

    assert tensor.as_numpy().flags.c_contiguous
    assert tensor.as_numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_scalars_and_empty_arrays_are_tensors(shape):
    tensor = pb_utils.Tensor("IN", np.zeros(shape, np.float32))

    assert tensor.shape() == list(shape)
    assert tensor.as_numpy().shape == shape


def test_numbers_of_another_byte_order_are_converted():
    tensor = pb_utils.Tensor("IN", np.arange(3, dtype=">i4"))

    assert tensor.as_numpy().dtype == np.int32
    assert tensor.as_numpy().tolist() == [0, 1, 2]


def test_strings_of_every_kind_make_a_bytes_tensor():
    arrays = [np.array(["a"]), np.array([b"a"]), np.array([b"a", "ü", 5], object)]

    tensors = [pb_utils.Tensor("IN", array) for array in arrays]

    assert [tensor.triton_dtype() for tensor in tensors] == [13, 13, 13]


def test_a_subclass_of_ndarray_is_taken_as_a_plain_array():
    tensor = pb_utils.Tensor("IN", np.ma.masked_array([1.0, 2.0]))

    assert type(tensor.as_numpy()) is np.ndarray


def test_a_name_of_numpys_string_type_becomes_a_plain_one():
    tensor = pb_utils.Tensor(np.str_("IN"), np.ones(1))

    assert type(tensor.name()) is str


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "longdouble", [("a", "f4")]])
def test_a_dtype_the_protocol_does_not_know_is_refused(dtype):
    with pytest.raises(pb_utils.TritonModelException, match=r"^NumPy dtype is not supported"):
        pb_utils.Tensor("IN", np.zeros(2, dtype))


@pytest.mark.parametrize("elements", [[1, 2], 5, np.float32(1), None])
def test_anything_but_an_array_is_refused(elements):
    with pytest.raises(TypeError, match="numpy_array must be a numpy"):
        pb_utils.Tensor("IN", elements)


def test_a_name_that_is_no_string_is_refused():
    with pytest.raises(TypeError, match="name must be a str, got int"):
        pb_utils.Tensor(1, np.ones(1))


def test_an_empty_name_is_refused():
    with pytest.raises(pb_utils.TritonModelException, match=r"^Tensor name cannot be an empty string"):
        pb_utils.Tensor("", np.ones(1))


def test_a_tensor_shows_what_it_is():
    assert repr(pb_utils.Tensor("IN", np.ones((1, 2), np.int8))) == "Tensor('IN', INT8, [1, 2])"
