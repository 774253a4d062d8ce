from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.ipc import frame
from tritonpy.ipc.frame import FrameReader, encode_frame

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=40)
)
payloads = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
messages = st.tuples(st.integers(1, 20), st.lists(st.integers(0, 1 << 62)).map(tuple), payloads)


@given(messages)
def test_a_message_comes_back_from_its_frame(message):
    assert FrameReader().feed(encode_frame(message)) == [message]


@given(st.lists(messages, max_size=6), st.data())
def test_messages_survive_any_split_of_the_stream(sent, data):
    stream = b"".join(encode_frame(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader()

    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received.extend(reader.feed(stream[start:end]))

    assert received == sent


@given(st.lists(messages, min_size=1, max_size=3))
def test_messages_survive_a_stream_of_single_bytes(sent):
    reader = FrameReader()

    received = []
    for message in sent:
        for byte in encode_frame(message):
            received.extend(reader.feed(bytes([byte])))

    assert received == sent


def test_a_message_waits_for_its_last_byte():
    encoded = encode_frame((1, (), "x"))
    reader = FrameReader()

    assert reader.feed(encoded[:-1]) == []
    assert reader.feed(encoded[-1:]) == [(1, (), "x")]


def test_a_receiver_that_fails_at_one_message_does_not_lose_the_others():
    first, second = encode_frame((1, ())), encode_frame((2, ()))
    reader = FrameReader()
    received = []

    def receive(data: bytes) -> None:
        for message in reader.feed(data):
            received.append(message)
            raise RuntimeError("broken receiver")

    with pytest.raises(RuntimeError, match="broken receiver"):
        receive(first + second[:3])

    assert reader.feed(second[3:]) == [(2, ())]
    assert received == [(1, ())]


def test_a_frame_is_its_length_and_a_body():
    encoded = encode_frame((1, ()))

    assert struct.unpack_from("<I", encoded)[0] == len(encoded) - 4


@pytest.mark.parametrize(
    "payload", [object(), Path("x"), {1j, object()}], ids=["object", "path", "set of objects"]
)
def test_what_frames_cannot_carry_is_refused_by_the_sender(payload):
    with pytest.raises(ValueError, match="unmarshallable"):
        encode_frame((1, (), payload))


def test_kinds_are_told_apart():
    kinds = [
        value
        for name, value in vars(frame).items()
        if name.isupper() and isinstance(value, int) and name[0] != "_" and name != "FRAME_VERSION"
    ]

    assert len(kinds) == len(set(kinds)) == 23
