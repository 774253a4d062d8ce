from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils


def test_numbers_and_numpy_types_map_as_in_triton():
    types = [pb_utils.triton_to_numpy_type(number) for number in range(16)]

    assert types == [
        None,
        np.bool_,
        np.uint8,
        np.uint16,
        np.uint32,
        np.uint64,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.float16,
        np.float32,
        np.float64,
        np.object_,
        None,  # BF16
        None,
    ]


def test_a_name_is_no_number():
    assert pb_utils.triton_to_numpy_type("FP32") is None


@pytest.mark.parametrize("number", range(1, 14))
def test_every_numpy_type_finds_its_number(number):
    kind = pb_utils.triton_to_numpy_type(number)

    assert pb_utils.numpy_to_triton_type(kind) == number
    assert pb_utils.numpy_to_triton_type(np.dtype(kind)) == number


def test_byte_strings_are_bytes_and_other_types_have_no_number():
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.numpy_to_triton_type(np.complex64) is None


def test_names_of_the_configuration_map_to_numpy_types():
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert len(pb_utils.TRITON_STRING_TO_NUMPY) == 13


@pytest.mark.parametrize("name", ["TYPE_BF16", "FP32", "TYPE_BYTES"])
def test_a_name_without_a_numpy_type_is_a_key_error(name):
    with pytest.raises(KeyError, match=name):
        pb_utils.triton_string_to_numpy(name)
