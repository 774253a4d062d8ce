"""What an entry says is what the response said, or it is no entry."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from tritonpy.buffers import MemoryType
from tritonpy.cache.entry import LAYOUT, BadEntry, decode_entry, encode_entry
from tritonpy.datatypes import DATATYPES
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor, pack_bytes

DIGEST = bytes(range(16))

parameters = st.dictionaries(
    st.text(max_size=4),
    st.one_of(
        st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=4)
    ),
    max_size=3,
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(sorted(DATATYPES)))
    shape = draw(nps.array_shapes(min_dims=0, min_side=0, max_side=3))
    name = draw(st.text(max_size=5))
    if datatype == "BYTES":
        elements = draw(nps.arrays(object, shape, elements=st.binary(max_size=5)))
        return Tensor(name, datatype, shape, pack_bytes(elements))
    dtype = DATATYPES[datatype].numpy
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return Tensor(name, datatype, shape, draw(st.binary(min_size=size, max_size=size)))


def encoded(response: InferResponse, digest: bytes = DIGEST) -> bytes:
    entry = encode_entry(digest, response.outputs, response.parameters)
    assert entry is not None
    return entry


def facts(response: InferResponse) -> Any:
    outputs = [(out.name, out.datatype, out.shape, bytes(out.wire())) for out in response.outputs]
    typed = {key: (type(value), value) for key, value in response.parameters.items()}
    return outputs, typed


@given(st.lists(tensors(), max_size=3), parameters)
def test_a_response_comes_back_as_it_was(outputs: list[Tensor], parameters: dict[str, Any]) -> None:
    response = InferResponse(outputs, parameters=parameters)

    assert facts(decode_entry(DIGEST, encoded(response))) == facts(response)


def test_a_parameter_that_is_no_number_comes_back() -> None:
    back = decode_entry(DIGEST, encoded(InferResponse(parameters={"a": math.nan, "b": -math.inf})))

    assert math.isnan(back.parameters["a"])
    assert back.parameters["b"] == -math.inf


@given(st.data())
def test_an_entry_with_one_wrong_byte_is_none(data: st.DataObject) -> None:
    entry = bytearray(encoded(InferResponse().add("O", np.arange(5, dtype=np.int32))))
    entry[data.draw(st.integers(0, len(entry) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(BadEntry):
        decode_entry(DIGEST, bytes(entry))


@given(st.data())
def test_an_entry_of_another_length_is_none(data: st.DataObject) -> None:
    entry = encoded(InferResponse().add("O", np.arange(5, dtype=np.int32)))
    size = data.draw(st.integers(0, len(entry) + 20).filter(lambda size: size != len(entry)))

    with pytest.raises(BadEntry):
        decode_entry(DIGEST, (entry + bytes(20))[:size])


@given(st.binary(max_size=200))
def test_any_bytes_are_no_entry(data: bytes) -> None:
    with pytest.raises(BadEntry):
        decode_entry(DIGEST, data)


@pytest.mark.parametrize("size", ["-4", "40"])
def test_an_entry_whose_output_ends_elsewhere_is_none(size: str) -> None:
    entry = encoded(InferResponse().add("O", np.arange(5, dtype=np.int32)))
    forged = entry.replace(b",20]", f",{size}]".encode())
    checksum = xxhash.xxh3_64_intdigest(forged[12:])

    with pytest.raises(BadEntry, match=f"output 'O' is INT32 with {size} bytes"):
        decode_entry(DIGEST, forged[:4] + struct.pack("<Q", checksum) + forged[12:])


def test_an_entry_for_another_key_is_none() -> None:
    entry = encoded(InferResponse().add("O", np.zeros(1, np.int8)), digest=bytes(16))

    with pytest.raises(BadEntry, match="written for the key 0000"):
        decode_entry(DIGEST, entry)


def test_an_entry_of_another_layout_is_none() -> None:
    entry = bytearray(encoded(InferResponse()))
    entry[3] = LAYOUT + 1

    with pytest.raises(BadEntry, match="it begins with"):
        decode_entry(DIGEST, bytes(entry))


def test_an_entry_may_be_a_view() -> None:
    entry = encoded(InferResponse([Tensor.from_numpy("Y", np.arange(4))], parameters={"a": 1}))

    decoded = decode_entry(DIGEST, memoryview(bytearray(entry)))

    assert facts(decoded) == facts(decode_entry(DIGEST, entry))
    with pytest.raises(BadEntry, match="it begins with b'nono', expected b'TPC"):
        decode_entry(DIGEST, memoryview(b"nono" * 20))


def test_tensors_are_read_where_they_lie() -> None:
    response = InferResponse().add("A", np.ones(3, np.int8)).add("B", np.ones(2, np.float64))
    entry = encoded(response)

    back = decode_entry(DIGEST, entry)

    for output in back.outputs:
        array = output.numpy()
        assert array.flags.aligned
        assert not array.flags.writeable
        assert np.shares_memory(array, np.frombuffer(entry, np.uint8))


def test_an_output_on_a_device_is_not_written() -> None:
    class Device:
        memory_type = MemoryType.GPU
        device_id = 0
        byte_size = 4

        def host_view(self) -> memoryview:
            raise AssertionError("the loop does not read devices")

    outputs = [Tensor("O", "FP32", (1,), Device())]

    assert encode_entry(DIGEST, outputs, {}) is None
