from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tritonpy.buffers import MemoryType
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.tensor import Tensor, pack_bytes, unpack_bytes

FIXED_SIZE = [name for name in DATATYPES if name != "BYTES"]


class Region:
    """Four FP32 elements in a region that counts how often it is opened."""

    memory_type = MemoryType.CPU
    device_id = 0
    byte_size = 16

    def __init__(self) -> None:
        self.opened = 0

    def host_view(self) -> memoryview:
        self.opened += 1
        return memoryview(np.arange(4, dtype=np.float32)).cast("B")


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    return npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


# BYTES


@given(st.lists(st.binary(max_size=40)), st.sampled_from([bytes, bytearray, memoryview]))
def test_unpacking_what_was_packed_gives_the_elements_back(elements, kind):
    array = np.empty(len(elements), object)
    array[:] = elements

    packed = pack_bytes(array)

    assert unpack_bytes(kind(packed), len(elements)) == elements
    assert len(packed) == sum(4 + len(element) for element in elements)


@given(st.lists(st.text(max_size=20)), st.booleans())
def test_text_is_packed_as_utf8(texts, as_objects):
    array = np.array(texts, object if as_objects else None) if texts else np.empty(0, object)
    expected = [str(text).encode() for text in array.tolist()]

    assert unpack_bytes(pack_bytes(array), len(texts)) == expected


def test_other_objects_are_packed_as_their_text():
    array = np.array([1, 2.5, None, True], object)

    assert unpack_bytes(pack_bytes(array), 4) == [b"1", b"2.5", b"None", b"True"]


@given(st.lists(st.binary(max_size=12), min_size=1), st.data())
def test_a_truncated_wire_form_is_refused(elements, data):
    array = np.empty(len(elements), object)
    array[:] = elements
    packed = pack_bytes(array)
    cut = data.draw(st.integers(0, len(packed) - 1))

    with pytest.raises(InvalidArg, match="incomplete string"):
        unpack_bytes(packed[:cut], len(elements))


@given(st.lists(st.binary(max_size=12)), st.binary(min_size=1, max_size=9))
def test_bytes_after_the_last_element_are_refused(elements, rest):
    array = np.empty(len(elements), object)
    array[:] = elements

    with pytest.raises(
        InvalidArg, match=f"{len(rest)} unexpected bytes after {len(elements)} string elements"
    ):
        unpack_bytes(pack_bytes(array) + rest, len(elements))


@given(st.binary(max_size=64), st.integers(0, 1 << 40))
def test_any_bytes_are_unpacked_or_refused(buffer, count):
    try:
        elements = unpack_bytes(buffer, count)
    except InvalidArg:
        return

    assert len(elements) == count
    assert b"".join(struct.pack("<I", len(element)) + element for element in elements) == buffer


def test_a_length_longer_than_the_buffer_is_named():
    with pytest.raises(InvalidArg, match="expecting string of length 4294967295 but only 3 bytes available"):
        unpack_bytes(b"\xff\xff\xff\xffabc", 1)
    with pytest.raises(InvalidArg, match="expecting 4 bytes but only 2 bytes available"):
        unpack_bytes(b"\x01\x00\x00\x00a\x01\x00", 2)


def test_a_shape_that_lies_about_its_elements_costs_no_memory():
    tensor = Tensor("TEXT", "BYTES", (1 << 50,), b"\x01\x00\x00\x00a")

    with pytest.raises(InvalidArg, match="incomplete string length indicator"):
        tensor.numpy()


@given(npst.arrays(object, shapes(), elements=st.binary(max_size=9)))
def test_bytes_tensors_come_back_from_the_wire(array):
    sent = Tensor.from_numpy("TEXT", array)

    received = Tensor("TEXT", "BYTES", sent.shape, bytes(sent.wire()))

    assert received.numpy().dtype == object
    assert received.numpy().shape == array.shape
    assert received.numpy().tolist() == array.tolist()
    assert sent.byte_size == received.byte_size


@pytest.mark.parametrize(
    "array",
    [
        np.array(["é", "b"]),
        np.array(["é", "b"], object),
        np.array(["é".encode(), b"b"], object),
        np.array(["é".encode(), b"b"], "S2"),
        np.array(["é", b"b"], object),
    ],
    ids=["U", "str objects", "bytes objects", "S", "mixed"],
)
def test_elements_are_bytes_on_both_sides_of_the_wire(array):
    # A model that gets another model's output in the same process must see what it would see over HTTP.
    here = Tensor.from_numpy("TEXT", array)
    there = Tensor("TEXT", "BYTES", here.shape, here.wire())

    assert here.numpy().dtype == there.numpy().dtype == object
    assert here.numpy().tolist() == there.numpy().tolist() == ["é".encode(), b"b"]
    assert all(type(element) is bytes for element in here.numpy())


# Numbers


@pytest.mark.parametrize("datatype", FIXED_SIZE)
@given(data=st.data())
def test_every_datatype_comes_back_from_the_wire_bit_by_bit(datatype, data):
    array = data.draw(npst.arrays(DATATYPES[datatype].numpy, shapes()))
    sent = Tensor.from_numpy("X", array, datatype if datatype == "BF16" else None)

    received = Tensor(sent.name, sent.datatype, sent.shape, bytes(sent.wire()))

    assert (received.datatype, received.shape) == (datatype, array.shape)
    assert received.numpy().dtype == DATATYPES[datatype].numpy
    assert received.numpy().tobytes() == array.tobytes()
    assert sent.byte_size == received.byte_size == array.nbytes
    assert received.element_count == array.size


@given(npst.arrays(npst.floating_dtypes(endianness=">", sizes=(16, 32, 64)), shapes()))
def test_big_endian_arrays_look_little_endian_to_everybody(array):
    tensor = Tensor.from_numpy("X", array)

    assert tensor.numpy().dtype == DATATYPES[tensor.datatype].numpy
    assert tensor.wire() == array.astype(array.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("datatype", ["FP32", "INT8", "BOOL"])
def test_arrays_that_are_not_contiguous_are_packed_row_by_row(datatype):
    array = np.arange(24).reshape(4, 6).astype(DATATYPES[datatype].numpy)[::2, 1::2].T

    assert bytes(Tensor.from_numpy("X", array).wire()) == array.tobytes()


def test_received_bytes_are_viewed_and_not_copied():
    received = bytearray(np.arange(6, dtype=np.int16).tobytes())

    array = Tensor("X", "INT16", (2, 3), received).numpy()
    received[0] = 77

    assert array[0, 0] == 77


def test_a_contiguous_array_is_sent_and_not_copied():
    array = np.zeros((2, 3), np.float64)

    wire = Tensor.from_numpy("X", array).wire()
    array[0, 0] = 1.0

    assert np.frombuffer(wire, np.float64)[0] == 1.0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_host_buffer_has_a_wire_form(kind):
    tensor = Tensor("X", "UINT32", (2,), kind(b"\x01\0\0\0\x02\0\0\0"))

    assert tensor.byte_size == 8
    assert bytes(tensor.wire()) == b"\x01\0\0\0\x02\0\0\0"
    assert tensor.numpy().tolist() == [1, 2]
    assert tensor.memory_type is MemoryType.CPU


@pytest.mark.parametrize("shape", [(3,), (2, 2), ()])
def test_a_buffer_of_the_wrong_size_is_refused(shape):
    with pytest.raises(InvalidArg, match="tensor 'X': 8 bytes do not hold FP32 of shape"):
        Tensor("X", "FP32", shape, b"12345678").numpy()


def test_a_buffer_that_holds_no_whole_element_is_refused():
    with pytest.raises(InvalidArg, match=r"tensor 'X': 3 bytes do not hold FP32 of shape \[1\]"):
        Tensor("X", "FP32", (1,), b"123").numpy()


def test_a_dtype_the_protocol_lacks_is_refused_by_name():
    with pytest.raises(
        InvalidArg, match="tensor 'X': the protocol has no datatype for numpy dtype 'complex64'"
    ):
        Tensor.from_numpy("X", np.zeros(1, np.complex64))


def test_numbers_are_never_taken_for_bits_of_bf16():
    with pytest.raises(
        InvalidArg, match=r"tensor 'X': datatype BF16 wants numpy dtype 'uint16' .* got 'float32'"
    ):
        Tensor.from_numpy("X", np.ones(2, np.float32), "BF16")


def test_a_location_is_opened_only_when_somebody_asks_for_the_bytes():
    region = Region()
    tensor = Tensor("X", "FP32", (4,), region)

    assert (tensor.byte_size, tensor.memory_type, tensor.renamed("Y").byte_size) == (16, MemoryType.CPU, 16)
    assert region.opened == 0
    assert tensor.numpy().tolist() == [0, 1, 2, 3]
    tensor.numpy()
    assert region.opened == 1


def test_renaming_keeps_bytes_and_array():
    array = np.arange(3, dtype=np.int32)
    tensor = Tensor.from_numpy("X", array)

    renamed = tensor.renamed("Y")

    assert (tensor.name, renamed.name, renamed.datatype, renamed.shape) == ("X", "Y", "INT32", (3,))
    assert renamed.numpy() is array


@pytest.mark.parametrize("datatype", [name for name in FIXED_SIZE if name != "BF16"])
def test_dlpack_consumers_get_the_elements_without_a_copy(datatype):
    array = np.arange(6).reshape(2, 3).astype(DATATYPES[datatype].numpy)

    imported = np.from_dlpack(Tensor.from_numpy("X", array))

    assert imported.tolist() == array.tolist()
    assert np.shares_memory(imported, array)


def test_a_tensor_describes_itself_without_its_bytes():
    assert repr(Tensor("X", "BYTES", (2, 1), b"")) == "Tensor('X', BYTES, [2, 1])"
