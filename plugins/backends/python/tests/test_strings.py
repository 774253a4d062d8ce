from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from hypothesis import given
from hypothesis import strategies as st


def test_elements_are_joined_in_row_major_order_with_their_lengths():
    array = np.array([[b"xyz", "ü"], [5, b""]], object)

    wire = pb_utils.serialize_byte_tensor(array)

    assert wire == b"\3\0\0\0xyz\2\0\0\0\xc3\xbc\1\0\0\x005\0\0\0\0"


@pytest.mark.parametrize("dtype", ["S3", "U3"])
def test_arrays_of_text_are_joined_like_objects(dtype):
    wire = pb_utils.serialize_byte_tensor(np.array(["abc"], dtype))

    assert wire == b"\3\0\0\0abc"


def test_no_elements_need_no_bytes():
    assert pb_utils.serialize_byte_tensor(np.array([], object)) == b""
    assert pb_utils.deserialize_bytes_tensor(b"").shape == (0,)


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_what_was_joined_is_split_into_the_same_elements(elements):
    array = np.empty(len(elements), object)
    array[:] = elements

    split = pb_utils.deserialize_bytes_tensor(pb_utils.serialize_byte_tensor(array))

    assert split.dtype == object
    assert split.tolist() == elements


@given(st.binary(max_size=40))
def test_bytes_that_are_no_strings_are_refused_and_never_misread(wire):
    try:
        split = pb_utils.deserialize_bytes_tensor(wire)
    except pb_utils.TritonModelException:
        return

    assert pb_utils.serialize_byte_tensor(split) == wire


def test_a_length_that_runs_past_the_end_is_named():
    with pytest.raises(
        pb_utils.TritonModelException, match="expecting string of length 5 but only 1 bytes available"
    ):
        pb_utils.deserialize_bytes_tensor(b"\5\0\0\0a")


def test_a_cut_off_length_is_named():
    with pytest.raises(pb_utils.TritonModelException, match="expecting 4 bytes but only 2 bytes available"):
        pb_utils.deserialize_bytes_tensor(b"\5\0")


def test_numbers_are_no_strings():
    with pytest.raises(pb_utils.TritonModelException, match="got int64"):
        pb_utils.serialize_byte_tensor(np.array([1, 2], np.int64))
