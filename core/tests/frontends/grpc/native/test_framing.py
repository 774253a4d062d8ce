"""Messages cut out of the bytes of a stream, however those come."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.frontends.grpc.native.framing import LARGE, BrokenFraming, MessageReader, framed

MESSAGES = st.lists(st.tuples(st.sampled_from([0, 1]), st.binary(max_size=40)), max_size=6)


def read(reader: MessageReader, *pieces: bytes) -> list[tuple[int, bytes]]:
    return [(flag, bytes(body)) for piece in pieces for flag, body in reader.feed(piece)]


def ignored(byte_size: int) -> None:
    """Nobody wants to know."""


@given(MESSAGES, st.lists(st.integers(0, 250)))
def test_messages_come_out_however_their_bytes_come_in(
    messages: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    sent = b"".join(framed((body,), flag) for flag, body in messages)
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    reader = MessageReader(ignored)

    received = read(reader, *(sent[begin:end] for begin, end in pairwise(places)))

    assert received == messages
    assert reader.is_between


@given(MESSAGES.filter(bool), st.integers(1, 20))
def test_bytes_that_lack_something_are_no_end(messages: list[tuple[int, bytes]], lacking: int) -> None:
    sent = b"".join(framed((body,), flag) for flag, body in messages)
    lacking = min(lacking, len(framed((messages[-1][1],))) - 1)
    reader = MessageReader(ignored)

    received = read(reader, sent[: len(sent) - lacking])

    assert received == messages[:-1]
    assert not reader.is_between


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])
@pytest.mark.parametrize("step", [1000, LARGE, 10 * LARGE])
def test_large_messages_are_put_together(size: int, step: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    sent = framed((body,)) + framed((b"next",))
    reader = MessageReader(ignored)

    received = read(reader, *(sent[at : at + step] for at in range(0, len(sent), step)))

    assert received == [(0, body), (0, b"next")]


def test_what_is_still_to_come_is_announced_when_all_before_it_was_taken() -> None:
    told: list[object] = []
    reader = MessageReader(told.append)

    for _, body in reader.feed(framed((b"one",)) + framed((b"two",)) + framed((b"three",))[:-1]):
        told.append(bytes(body))
    told += [bytes(body) for _, body in reader.feed(b"e")]

    assert told == [b"one", b"two", 5, b"three"]


def test_an_announcement_may_be_refused() -> None:
    def refuse(byte_size: int) -> None:
        raise ValueError(byte_size)

    with pytest.raises(ValueError, match="4294967295"):
        read(MessageReader(refuse), b"\0\xff\xff\xff\xff")


def test_a_flag_that_nobody_knows_breaks_the_stream() -> None:
    with pytest.raises(BrokenFraming, match="flag 2"):
        read(MessageReader(ignored), b"\2\0\0\0\0")
