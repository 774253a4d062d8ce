"""A key differs exactly when the answer may."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tritonpy.buffers import MemoryType
from tritonpy.cache.key import KeyMaker
from tritonpy.errors import Unavailable
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor

MAKER = KeyMaker("m", "1", b"one load")

Described = tuple[tuple[tuple[str, str, tuple[int, ...], bytes], ...], Any, Any]
"""Inputs, wanted outputs and parameters: what a key covers."""

names = st.text(st.sampled_from("ab'\",()\0é\ud800"), min_size=1, max_size=3)
inputs = st.tuples(
    names,
    st.sampled_from(["INT8", "UINT8", "BYTES"]),
    st.lists(st.integers(0, 12), max_size=2).map(tuple),
    st.binary(max_size=4),
)
values = st.one_of(st.booleans(), st.integers(-2, 2), st.floats(-1, 1), names)
described = st.tuples(
    st.lists(inputs, max_size=3, unique_by=lambda tensor: tensor[0]).map(tuple),
    st.one_of(st.none(), st.frozensets(names, max_size=2)),
    st.dictionaries(names, values, max_size=2),
)


def request(what: Described, **how: Any) -> InferRequest:
    tensors, wanted, parameters = what
    return InferRequest(
        "m",
        {name: Tensor(name, datatype, shape, data) for name, datatype, shape, data in tensors},
        requested_outputs=None if wanted is None else tuple(wanted),
        parameters=parameters,
        **how,
    )


def key(what: Described, maker: KeyMaker = MAKER, **how: Any) -> str:
    made = maker.make(request(what, **how))
    assert made is not None
    return made.text


def normal(what: Described) -> object:
    """Equal for two requests exactly when they are the same: 1, True and 1.0 are three things."""
    tensors, wanted, parameters = what
    typed = {name: (type(value), repr(value)) for name, value in parameters.items()}
    return set(tensors), wanted, typed


@given(described, described)
def test_two_requests_have_one_key_only_if_they_are_the_same(one: Described, other: Described) -> None:
    assert (key(one) == key(other)) == (normal(one) == normal(other))


@given(described, st.randoms(use_true_random=False))
def test_the_order_of_inputs_and_outputs_makes_no_difference(what: Described, random: Any) -> None:
    tensors, wanted, parameters = list(what[0]), list(what[1] or ()), list(what[2].items())
    for sequence in (tensors, wanted, parameters):
        random.shuffle(sequence)

    shuffled = (tuple(tensors), None if what[1] is None else wanted, dict(parameters))

    assert key(shuffled) == key(what)


@given(described, st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), names)
def test_how_a_request_travels_makes_no_difference(
    what: Described, flags: int, priority: int, timeout_us: int, id: str
) -> None:
    how = {"flags": flags, "priority": priority, "timeout_us": timeout_us, "id": id, "correlation_id": 7}

    assert key(what, **how) == key(what)


@given(st.binary(min_size=1, max_size=3000), st.integers(0, 2999), st.integers(1, 255))
def test_every_byte_counts(data: bytes, index: int, change: int) -> None:
    index %= len(data)
    other = bytearray(data)
    other[index] ^= change

    def of(data: bytes) -> str:
        return key(((("I", "UINT8", (len(data),), data),), None, {}))

    assert of(data) != of(bytes(other))


@given(st.binary(max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_bytes_do_not_move_from_one_input_to_its_neighbour(data: bytes, one: int, other: int) -> None:
    assume(one != other and max(one, other) <= len(data))

    def cut(at: int) -> str:
        return key(((("A", "BYTES", (1,), data[:at]), ("B", "BYTES", (1,), data[at:])), None, {}))

    assert cut(one) != cut(other)


@pytest.mark.parametrize(
    "other",
    [KeyMaker("n", "1", b"one load"), KeyMaker("m", "2", b"one load"), KeyMaker("m", "1", b"another")],
)
def test_model_version_and_generation_have_keys_of_their_own(other: KeyMaker) -> None:
    what: Described = ((("I", "INT8", (1,), b"x"),), None, {})

    assert key(what, other).rpartition(":")[2] != key(what).rpartition(":")[2]


def test_a_key_tells_people_its_model() -> None:
    made = KeyMaker("resnet", "3", os.urandom(16)).make(request(((), None, {})))

    assert made is not None
    assert made.model == "resnet:3"
    assert made.text == f"resnet:3:{made.digest.hex()}"
    assert len(made.digest) == 16


def test_arrays_and_received_bytes_have_the_same_key() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    received = InferRequest("m", {"I": Tensor("I", "FP32", (2, 3), array.tobytes())})
    computed = InferRequest("m", {"I": Tensor.from_numpy("I", array.T.copy().T)})

    assert MAKER.make(received) == MAKER.make(computed)


class Place:
    """Where a tensor's bytes are, when they are not here."""

    device_id = 0
    byte_size = 1

    def __init__(self, memory_type: MemoryType, data: bytes | None = None) -> None:
        self.memory_type = memory_type
        self._data = data

    def host_view(self) -> memoryview:
        if self._data is None:
            raise Unavailable("the region is gone")
        return memoryview(self._data)


def test_shared_memory_of_the_system_is_read_and_that_of_a_device_is_not() -> None:
    def made(place: Place) -> object:
        return MAKER.make(InferRequest("m", {"I": Tensor("I", "INT8", (1,), place)}))

    assert made(Place(MemoryType.CPU, b"x")) == MAKER.make(request(((("I", "INT8", (1,), b"x"),), None, {})))
    assert made(Place(MemoryType.GPU, b"x")) is None
    assert made(Place(MemoryType.CPU)) is None
