"""Frames, requests and responses between programs and servers, from any bytes at all."""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import NotFound, TritonError
from tritonpy.plugin import InferRequest, InferResponse, Tensor
from tritonpy_sdk.remote.link import Link
from tritonpy_sdk.remote.messages import (
    read_requests,
    read_responses,
    request_entry,
    response_entry,
)
from tritonpy_sdk.remote.proof import PROGRAM, SERVER, is_nonce, is_proof, new_nonce, prove
from tritonpy_sdk.remote.session import Session
from tritonpy_sdk.remote.wire import FIRST_HEAD_BYTES, MAGIC, BadFrame, Frame, FrameReader, encode

MOST = 1 << 22
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**70) | st.text(max_size=20) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "kind",
        "versions",
        "nonce",
        "proof",
        "version",
        "program",
        "server",
        "most_data_bytes",
        "silence_s",
        "error",
        "binding",
        "name",
        "config",
        "call",
        "instance",
        "requests",
        "request",
        "count",
        "byte_size",
        "reason",
        "again",
        "responses",
        "response",
        "final",
        "compute_ns",
    ]
)
HEADS = st.dictionaries(KEYS, VALUES, max_size=6)
HEADS_OF_KINDS = st.builds(
    lambda kind, head: head | {"kind": kind},
    st.sampled_from(
        [
            "hello",
            "welcome",
            "refused",
            "bound",
            "failed",
            "execute",
            "cancel",
            "took",
            "ended",
            "ping",
            "prove",
            "bind",
            "unbind",
        ]
    ),
    HEADS,
)


def read_all(data: bytes, sizes: list[int]) -> list[Frame]:
    """The frames of bytes that come in pieces of these sizes, one after the other and again."""
    reader = FrameReader(MOST, MOST)
    frames = []
    for begin, end in _cuts(len(data), sizes):
        frames += reader.feed(data[begin:end])
    assert not reader.is_within
    return frames


def _cuts(size: int, sizes: list[int]) -> list[tuple[int, int]]:
    cuts, at, index = [], 0, 0
    while at < size:
        cuts.append((at, at + sizes[index % len(sizes)]))
        at, index = cuts[-1][1], index + 1
    return cuts


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(HEADS_OF_KINDS, st.lists(st.binary(max_size=200) | st.just(bytes(300_000)), max_size=2)),
        max_size=4,
    ),
    st.lists(st.sampled_from([1, 7, 100, 4096, 100_000, 1_000_000]), min_size=1, max_size=4),
)
def test_frames_are_read_as_they_were_written_however_they_come(
    written: list[tuple[Any, list[bytes]]], sizes: list[int]
) -> None:
    data = b"".join(b"".join(encode(head, parts)) for head, parts in written)
    if len(data) > 100_000:
        sizes = [max(size, 4096) for size in sizes]

    frames = read_all(data, sizes)

    assert [json.dumps(frame.head) for frame in frames] == [json.dumps(head) for head, _ in written]
    assert [bytes(frame.data) for frame in frames] == [b"".join(parts) for _, parts in written]
    assert all(not frame.data.readonly for frame in frames)


@settings(deadline=None)
@given(st.binary(max_size=400), st.booleans(), st.integers(0, 400))
def test_any_bytes_are_frames_or_refused(data: bytes, begins: bool, cut: int) -> None:
    reader = FrameReader()
    with suppress(BadFrame):
        for part in ((MAGIC if begins else b"") + data[:cut], data[cut:]):
            for frame in reader.feed(part):
                assert isinstance(frame.head["kind"], str)


@pytest.mark.parametrize(
    ("head_size", "data_size", "text"),
    [
        (FIRST_HEAD_BYTES + 1, 0, "a head of 4097 bytes, expected 4096 at most"),
        (2**32 - 1, 2**64 - 1, "a head of 4294967295 bytes"),
        (2, 1, "tensors of 1 bytes in one frame, expected 0 at most"),
    ],
)
def test_sizes_are_compared_before_anything_comes(head_size: int, data_size: int, text: str) -> None:
    with pytest.raises(BadFrame, match=text):
        FrameReader().feed(struct.pack("<4sIQ", MAGIC, head_size, data_size))


@pytest.mark.parametrize(
    "head", [b"", b"[]", b"{}", b'{"kind": 1}', b"\xff", b"[" * 4000, b'{"kind": "x"', b"1" * 4000]
)
def test_heads_that_are_none(head: bytes) -> None:
    with pytest.raises(BadFrame, match="the head of a frame is no"):
        FrameReader().feed(struct.pack("<4sIQ", MAGIC, len(head), 0) + head)


ARRAYS = [
    Tensor.from_numpy(name, np.arange(6).reshape(2, 3).astype(datatype.numpy), name)
    for name, datatype in DATATYPES.items()
    if name != "BYTES"
] + [Tensor.from_numpy("BYTES", np.array([[b"", b"\0\xff"]], object))]


def test_requests_are_read_as_they_were_written() -> None:
    request = InferRequest(
        "net",
        {tensor.name: tensor for tensor in ARRAYS},
        id="ü",
        requested_outputs=("b",),
        parameters={"a": 1, "b": "c", "d": True, "e": 0.5},
        flags=3,
        correlation_id="s",
        priority=2,
        timeout_us=7,
    )
    request.batch_size = 2
    parts: list[Any] = []
    entries = [request_entry(request, ["a", "b"], parts), request_entry(InferRequest("net", {}), [], parts)]

    found, plain = read_requests("net", json.loads(json.dumps(entries)), memoryview(b"".join(parts)))

    keys = "id requested_outputs parameters flags correlation_id priority timeout_us batch_size"
    for key in keys.split():
        assert getattr(found, key) == getattr(request, key), key
    for tensor in ARRAYS:
        other = found.inputs[tensor.name]
        assert (other.datatype, other.shape) == (tensor.datatype, tensor.shape)
        assert bytes(other.wire()) == bytes(tensor.wire())
    assert (plain.id, plain.requested_outputs, plain.parameters, plain.inputs) == ("", None, {}, {})


def test_responses_are_read_as_they_were_written() -> None:
    parts: list[Any] = []
    given = [
        InferResponse(ARRAYS, parameters={"a": 1}),
        None,
        InferResponse(error=NotFound("not here")),
    ]
    entries = [response_entry(response, parts) for response in given]

    first, none, error = read_responses(json.loads(json.dumps(entries)), memoryview(b"".join(parts)))

    assert first is not None
    assert [bytes(tensor.wire()) for tensor in first.outputs] == [bytes(t.wire()) for t in ARRAYS]
    assert (first.parameters, none) == ({"a": 1}, None)
    assert error is not None
    assert isinstance(error.error, NotFound)


ENTRY: dict[str, Any] = {"inputs": [["x", "FP32", [1, 2], 8]]}
TENSORS = st.lists(
    st.lists(VALUES | st.sampled_from(["x", "FP32", "BYTES", 8, [1, 2]]), max_size=5) | VALUES, max_size=2
)


@settings(deadline=None, max_examples=60)
@given(
    VALUES | st.lists(HEADS | st.fixed_dictionaries({"inputs": TENSORS, "outputs": TENSORS})),
    st.binary(max_size=16),
)
def test_any_entries_are_requests_or_refused(entries: Any, data: bytes) -> None:
    for read in (
        lambda: read_requests("net", entries, memoryview(data)),
        lambda: read_responses(entries, memoryview(data)),
    ):
        with suppress(BadFrame):
            read()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"inputs": [["x", "FP32", [1, 2], 4]]}, "do not hold FP32"),
        ({"inputs": [["x", "FP32", [1, 2], 12]]}, "not in the frame"),
        ({"inputs": []}, "8 bytes of a frame belong to no tensor"),
        ({"inputs": [["x", "FP32", [2**70, 0], 8]]}, "do not hold"),
        ({"inputs": [["x", "FP32", [True, 2], 8]]}, "a shape that is none"),
        ({"id": 1}, "'id' has a value of the wrong type"),
        ({"rows": True}, "'rows' has a value"),
        ({"parameters": {"a": []}}, "no plain values"),
    ],
)
def test_requests_that_are_none(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(BadFrame, match=text):
        read_requests("net", [ENTRY | changed], memoryview(bytes(8)))


def test_a_proof_holds_for_its_side_token_and_numbers_only() -> None:
    numbers = new_nonce(), new_nonce()
    proof = prove("token", PROGRAM, *numbers)

    assert is_proof(proof, "token", PROGRAM, *numbers)
    assert not is_proof(proof, "token", SERVER, *numbers)
    assert not is_proof(proof, "other", PROGRAM, *numbers)
    assert not is_proof(proof, "token", PROGRAM, *reversed(numbers))
    assert not is_proof(proof, "token", PROGRAM, numbers[0], new_nonce())
    assert is_nonce(numbers[0])
    assert not any(map(is_nonce, ["", "short", None, 7, "ü" * 40, "x" * 300]))


class Silent:
    """A program that has bound nothing."""

    def __init__(self) -> None:
        self.session: Session | None = None

    def find(self, number: int) -> None:
        return None

    def bound(self, number: int) -> None:
        pass

    def failed(self, number: int, error: TritonError) -> None:
        pass

    def ended(self, number: int, reason: str, again: bool) -> None:
        pass

    def over(self, session: Session) -> None:
        self.session = session


class Transport(asyncio.Transport):
    """Takes what is written, and ends as a real one does."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.written = b""
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._link.connection_lost, None)

    abort = close


def put(link: Link, data: bytes) -> None:
    while data:
        room = link.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        link.buffer_updated(count)
        data = data[count:]


HELLO = {"kind": "hello", "versions": [1], "nonce": "0" * 64, "server": "x"}


@settings(deadline=None, max_examples=60)
@given(st.lists(HEADS_OF_KINDS | st.just(HELLO), max_size=6), st.booleans())
def test_whatever_a_server_says_a_program_goes_on_or_hangs_up(heads: list[Any], is_open: bool) -> None:
    async def converse() -> None:
        owner = Silent()
        session = Session(owner, "token")
        transport = Transport(session.link)
        session.link.connection_made(transport)
        if is_open:
            put(session.link, b"".join(encode(HELLO)))
            (answer,) = FrameReader().feed(transport.written)
            proof = prove("token", SERVER, HELLO["nonce"], answer.head["nonce"])  # type: ignore[arg-type]
            welcome = {"kind": "welcome", "proof": proof, "most_data_bytes": 100, "silence_s": 1000}
            put(session.link, b"".join(encode(welcome)))
            assert session.opened.done()
            assert session.opened.exception() is None
        for head in heads:
            if not transport.is_closing():
                put(session.link, b"".join(encode(head)))
        transport.close()
        await asyncio.sleep(0)
        assert owner.session is session
        assert session.opened.done()
        session.opened.exception()

    asyncio.run(converse())
