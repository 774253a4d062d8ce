"""The client's side of HTTP/2 without sockets: beside a server of another hand, and frame by frame."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import hpack
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes
from tritonpy_router.grpc_client.call import Headers, Piece
from tritonpy_router.grpc_client.engine import STREAM_WINDOW, ClientEngine
from tritonpy_router.grpc_client.header_blocks import BlockReader, encoded
from tritonpy_router.grpc_client.http2 import (
    CANCEL,
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    ConnectionBroken,
)

PATH = "/inference.GRPCInferenceService/ModelInfer"
ASKED = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"replica:8001"),
    (b":path", PATH.encode()),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"authorization", b"Bearer " + b"k" * 300),
    (b"x-trace-bin", b"AAEC"),
]
ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
STATUS = [("grpc-status", "0"), ("grpc-message", "all is well")]
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x4, 0x8, 0x20


class Told:
    """A call that notes what it is told."""

    def __init__(self) -> None:
        self.headers: list[Headers] = []
        self.trailers: list[Headers] = []
        self.data: list[bytes] = []
        self.over: list[int | None] = []

    def replica_headers(self, headers: Headers, is_last: bool) -> None:
        self.headers.append(headers)

    def replica_data(self, data: bytes) -> None:
        self.data.append(data)

    def replica_trailers(self, headers: Headers) -> None:
        self.trailers.append(headers)

    def replica_over(self, code: int | None) -> None:
        self.over.append(code)

    def replica_flushed(self) -> None: ...


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def block(headers: Sequence[tuple[str, str]]) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    written: bytes = encoder.encode(headers)
    return written


def sent(engine: ClientEngine) -> bytes:
    out = b""
    while pieces := engine.take(1 << 20):
        out += b"".join(pieces)
    return out


def engine_of(frames: bytes = frame(SETTINGS), on_goaway: Callable[[], None] = lambda: None) -> ClientEngine:
    """An engine that a replica has sent these frames."""
    engine = ClientEngine(BlockReader(), on_goaway)
    engine.start()
    sent(engine)
    engine.feed(memoryview(frames))
    sent(engine)
    return engine


class Replica:
    """The other side, by the distribution `h2`; takes and sends a few bytes at a time."""

    def __init__(self, chunk: int, **settings: int) -> None:
        self.chunk = chunk
        self.engine = ClientEngine(BlockReader(), lambda: None)
        self.connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.connection.local_settings.update({SettingCodes[name]: value for name, value in settings.items()})
        self.connection.initiate_connection()
        self.requests: dict[int, Any] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.reset: list[int] = []
        self.engine.start()

    def turn(self) -> None:
        """Carry bytes until there are none."""
        while (there := sent(self.engine)) + (back := self.connection.data_to_send()):
            for event in self.connection.receive_data(there):
                self._note(event)
            back += self.connection.data_to_send()
            for begin in range(0, len(back), self.chunk):
                self.engine.feed(memoryview(back[begin : begin + self.chunk]))

    def answer(self, stream: int, body: bytes) -> None:
        self.connection.send_headers(stream, ANSWER)
        while body:
            room = min(self.connection.local_flow_control_window(stream), len(body), 16_384)
            assert room > 0
            self.connection.send_data(stream, body[:room])
            body = body[room:]
            self.turn()
        self.connection.send_headers(stream, STATUS, end_stream=True)
        self.turn()

    def _note(self, event: object) -> None:
        if isinstance(event, RequestReceived):
            self.requests[event.stream_id] = event.headers
            self.bodies[event.stream_id] = b""
        elif isinstance(event, DataReceived):
            self.bodies[event.stream_id] += event.data
            self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.ended.append(event.stream_id)
        elif isinstance(event, StreamReset):
            self.reset.append(event.stream_id)


class Returning(Told):
    """Gives back what it is told at once, as where a client takes everything."""

    def __init__(self, engine: ClientEngine) -> None:
        super().__init__()
        self.engine = engine
        self.stream: Any = None

    def replica_data(self, data: bytes) -> None:
        super().replica_data(data)
        self.engine.consumed(self.stream, len(data))


@pytest.mark.parametrize("chunk", [1, 5, 9, 4096, 1 << 20])
@pytest.mark.parametrize("size", [0, 10, 20_000])
def test_a_call_and_its_answer_arrive_whole(chunk: int, size: int) -> None:
    replica, body = Replica(chunk), bytes(size % 251 for size in range(size))
    call = Returning(replica.engine)
    call.stream = replica.engine.ask(encoded(ASKED), (body,), call)
    replica.turn()
    replica.answer(1, body)

    assert [tuple(pair) for pair in replica.requests[1]] == ASKED
    assert (replica.bodies[1], replica.ended) == (body, [1])
    assert b"".join(call.data) == body
    assert dict(call.headers[0]) == {b":status": b"200", b"content-type": b"application/grpc"}
    assert (call.trailers, call.over) == ([((b"grpc-status", b"0"), (b"grpc-message", b"all is well"))], [0])


def test_many_calls_with_large_messages_share_the_windows() -> None:
    replica = Replica(70_000, INITIAL_WINDOW_SIZE=20_000)
    replica.turn()
    bodies = [bytes([each]) * 300_000 for each in range(5)]
    calls = []
    for body in bodies:
        call = Returning(replica.engine)
        call.stream = replica.engine.ask(encoded(ASKED), (body[:100_000], memoryview(body)[100_000:]), call)
        calls.append(call)
    replica.turn()
    for stream in range(1, 11, 2):
        replica.answer(stream, bodies[stream // 2] * 5)

    assert [replica.bodies[stream] for stream in range(1, 11, 2)] == bodies
    assert [b"".join(call.data) for call in calls] == [body * 5 for body in bodies]
    assert [call.over for call in calls] == [[0]] * 5


def test_a_small_window_is_kept_and_grows_again() -> None:
    replica = Replica(4096)
    replica.turn()
    replica.connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    replica.turn()
    engine = replica.engine
    stream = engine.begin(encoded(ASKED), Told())
    engine.data(stream, b"x" * 25)
    engine.end(stream)
    engine.take(1 << 20)

    assert stream.queued == 15
    engine.feed(memoryview(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 20))))
    pieces = engine.take(1 << 20)
    assert stream.queued == 5
    engine.feed(memoryview(frame(WINDOW_UPDATE, 0, 1, number(100))))
    assert b"".join(engine.take(1 << 20)) == frame(DATA, END_STREAM, 1, b"xxxxx")
    assert frame(DATA, 0, 1, b"x" * 10) in b"".join(pieces)


def test_messages_leave_as_the_objects_that_they_came_in() -> None:
    engine = engine_of(
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 20)) + frame(WINDOW_UPDATE, 0, 0, number(1 << 20))
    )
    pieces: list[Piece] = [bytes(60_000), bytes(61_000), bytes(10)]
    engine.ask(encoded(ASKED), pieces, Told())

    left = [part for part in engine.take(1 << 20) if len(part) > 9][1:]  # the first are headers

    owners = [part.obj if isinstance(part, memoryview) else part for part in left]
    assert b"".join(left) == b"".join(pieces)
    assert {id(owner) for owner in owners} == {id(piece) for piece in pieces}


def test_what_comes_of_a_frame_is_copied_once_and_handed_on_before_its_end() -> None:
    engine, call = engine_of(), Told()
    engine.ask(encoded(ASKED), (b"?",), call)
    engine.feed(memoryview(frame(HEADERS, END_HEADERS, 1, block(ANSWER))))
    whole = frame(DATA, 0, 1, b"a" * 30_000)
    scratch = memoryview(bytearray(20_000))
    for begin in (0, 20_000):
        part = whole[begin : begin + 20_000]
        scratch[: len(part)] = part
        engine.feed(scratch[: len(part)])
        scratch[:] = bytes(20_000)  # the next read is somebody else's

    assert list(map(len, call.data)) == [19_991, 10_009]
    assert b"".join(call.data) == b"a" * 30_000


def test_a_replica_gets_room_when_half_of_it_was_consumed() -> None:
    engine, call = engine_of(), Told()
    stream = engine.ask(encoded(ASKED), (b"?",), call)
    sent(engine)
    engine.feed(memoryview(frame(HEADERS, END_HEADERS, 1, block(ANSWER)) + frame(DATA, 0, 1, bytes(60_000))))

    engine.consumed(stream, 60_000)
    assert sent(engine) == b""
    engine.consumed(stream, STREAM_WINDOW // 2 - 60_000)
    assert sent(engine) == frame(WINDOW_UPDATE, 0, 1, number(STREAM_WINDOW // 2))


@pytest.mark.parametrize("flags", [0, PADDED, WITH_PRIORITY, PADDED | WITH_PRIORITY])
@pytest.mark.parametrize("cut", [1, 4, 1000])
def test_headers_may_come_in_any_form(flags: int, cut: int) -> None:
    engine, call = engine_of(), Told()
    engine.ask(encoded(ASKED), (b"?",), call)
    written = block([*ANSWER, ("x", "y")])
    first = written[:cut]
    if flags & WITH_PRIORITY:
        first = bytes(5) + first
    if flags & PADDED:
        first = b"\3" + first + bytes(3)
    rest = written[cut:]
    frames = frame(HEADERS, flags | (0 if rest else END_HEADERS), 1, first)
    if rest:
        frames += frame(CONTINUATION, END_HEADERS, 1, rest)
    engine.feed(memoryview(frames + frame(DATA, PADDED | END_STREAM, 1, b"\2abc\0\0")))

    assert dict(call.headers[0])[b"x"] == b"y"
    assert (call.data, call.over) == ([b"abc"], [0])


def test_a_table_that_may_not_be_kept_is_given_up_once() -> None:
    engine = engine_of(frame(SETTINGS, 0, 0, struct.pack(">HI", 1, 0)))
    for _ in range(2):
        engine.ask(encoded(ASKED), (b"?",), Told())

    first, second = engine.take(1)
    assert (first[9:11], second[9:10]) == (b"\x20\x83", b"\x83")


def test_calls_wait_where_a_replica_takes_few_and_are_refused_when_it_leaves() -> None:
    left: list[bool] = []
    engine = engine_of(frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 2)), lambda: left.append(True))
    calls = [Told() for _ in range(5)]
    streams = [engine.ask(encoded(ASKED), (b"?",), call) for call in calls]
    assert ([stream.number for stream in streams], engine.has_place) == ([1, 3, 0, 0, 0], False)

    engine.cancel(streams[0])
    assert [stream.number for stream in streams] == [1, 3, 0, 0, 0]  # the replica still has it
    engine.reset(1, CANCEL)
    assert [stream.number for stream in streams] == [1, 3, 5, 0, 0]
    engine.feed(memoryview(frame(HEADERS, END_HEADERS | END_STREAM, 3, block([*ANSWER, *STATUS]))))
    assert [stream.number for stream in streams] == [1, 3, 5, 7, 0]
    assert sent(engine).endswith(frame(DATA, END_STREAM, 7, b"?"))
    engine.feed(memoryview(frame(GOAWAY, 0, 0, number(5) + number(0))))

    assert [call.over for call in calls] == [[], [0], [], [REFUSED_STREAM], [REFUSED_STREAM]]
    assert (left, engine.takes_calls, engine.call_count) == ([True], False, 1)


def test_calls_hear_that_the_connection_is_lost() -> None:
    engine = engine_of(frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 1)))
    calls = [Told(), Told()]
    for call in calls:
        engine.ask(encoded(ASKED), (b"?",), call)

    assert engine.lose() == calls
    assert engine.call_count == 0


def test_an_answer_that_comes_before_the_end_of_the_request_ends_it() -> None:
    engine, call = engine_of(), Told()
    stream = engine.begin(encoded(ASKED), call)
    engine.data(stream, bytes(100_000))
    engine.take(1 << 20)
    engine.feed(memoryview(frame(HEADERS, END_HEADERS | END_STREAM, 1, block([*ANSWER, *STATUS]))))

    assert call.over == [0]
    assert sent(engine) == frame(DATA, END_STREAM, 1)
    engine.data(stream, b"more")
    assert sent(engine) == b""


def test_what_comes_for_a_call_that_was_given_up_is_dropped() -> None:
    engine, call = engine_of(), Told()
    engine.cancel(engine.ask(encoded(ASKED), (b"?",), call))
    engine.feed(memoryview(frame(HEADERS, END_HEADERS, 1, block(ANSWER)) + frame(DATA, 0, 1, b"late")))
    engine.feed(memoryview(frame(RST_STREAM, 0, 1, number(2))))

    assert (call.headers, call.data, call.over, engine.cancelled) == ([], [], [], {})


def test_a_ping_is_answered_and_settings_are() -> None:
    engine = engine_of()
    engine.feed(memoryview(frame(PING, 0, 0, b"12345678") + frame(SETTINGS) + frame(PING, 1, 0, bytes(8))))

    assert sent(engine) == frame(PING, 1, 0, b"12345678") + frame(SETTINGS, 1)


BEGUN = frame(HEADERS, END_HEADERS, 1, block(ANSWER))
FAILS = {
    "data before headers": frame(DATA, 0, 1, b"abc"),
    "headers without a status": frame(HEADERS, END_HEADERS, 1, block([("content-type", "x")])),
    "a name in upper case": frame(HEADERS, END_HEADERS, 1, block([(":status", "200"), ("Name", "x")])),
    "a line break in a value": frame(HEADERS, END_HEADERS, 1, block([(":status", "200"), ("x", "a\r\nb")])),
    "a header of connections": frame(
        HEADERS, END_HEADERS, 1, block([(":status", "200"), ("connection", "x")])
    ),
    "headers in the middle": BEGUN + frame(HEADERS, END_HEADERS, 1, block(STATUS)),
    "a status behind the data": BEGUN
    + frame(HEADERS, END_HEADERS | END_STREAM, 1, block([(":status", "200")])),
    "a window beyond all bounds": frame(WINDOW_UPDATE, 0, 1, number((1 << 31) - 1)),
}


@pytest.mark.parametrize("frames", FAILS.values(), ids=FAILS)
def test_an_answer_that_is_not_allowed_ends_its_call_alone(frames: bytes) -> None:
    engine, call, other = engine_of(), Told(), Told()
    engine.ask(encoded(ASKED), (b"?",), call)
    engine.ask(encoded(ASKED), (b"?",), other)
    sent(engine)
    engine.feed(memoryview(frames))

    assert (call.over, other.over) == ([PROTOCOL_ERROR], [])
    assert sent(engine) == frame(RST_STREAM, 0, 1, number(PROTOCOL_ERROR))


BREAKS = {
    "no settings first": (b"", frame(PING, 0, 0, bytes(8)), PROTOCOL_ERROR),
    "no settings first, but data": (b"", frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
    "another protocol": (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", FRAME_SIZE_ERROR),
    "a frame that is too large": (
        frame(SETTINGS),
        struct.pack(">IBI", (1 << 17) << 8, 0, 1),
        FRAME_SIZE_ERROR,
    ),
    "a stream that was not begun": (frame(SETTINGS), frame(HEADERS, END_HEADERS, 9, b"\x88"), PROTOCOL_ERROR),
    "a stream of its own": (frame(SETTINGS), frame(DATA, 0, 2, b"abc"), PROTOCOL_ERROR),
    "a push": (frame(SETTINGS), frame(PUSH_PROMISE, END_HEADERS, 1, number(2) + b"\x88"), PROTOCOL_ERROR),
    "headers that do not go on": (
        frame(SETTINGS),
        frame(HEADERS, 0, 1, b"\x88") + frame(PING, 0, 0, bytes(8)),
        1,
    ),
    "data amid headers": (frame(SETTINGS), frame(HEADERS, 0, 1, b"\x88") + frame(DATA, 0, 1, b"x"), 1),
    "headers that only go on": (
        frame(SETTINGS),
        frame(CONTINUATION, END_HEADERS, 1, b"\x88"),
        PROTOCOL_ERROR,
    ),
    "headers without an end": (
        frame(SETTINGS),
        frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, bytes(60_000)) * 5,
        PROTOCOL_ERROR,
    ),
    "a block that is none": (
        frame(SETTINGS),
        frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"),
        COMPRESSION_ERROR,
    ),
    "a header of a table": (frame(SETTINGS), frame(HEADERS, END_HEADERS, 1, b"\xbe"), COMPRESSION_ERROR),
    "headers of no stream that go on": (frame(SETTINGS), frame(HEADERS, 0, 0, b"\x88"), PROTOCOL_ERROR),
    "padding beyond the frame": (frame(SETTINGS), frame(DATA, PADDED, 1, b"\x09abc"), PROTOCOL_ERROR),
    "a ping of five bytes": (frame(SETTINGS), frame(PING, 0, 0, b"12345"), FRAME_SIZE_ERROR),
    "a reset of one byte": (frame(SETTINGS), frame(RST_STREAM, 0, 1, b"1"), FRAME_SIZE_ERROR),
    "a window of one byte": (frame(SETTINGS), frame(WINDOW_UPDATE, 0, 1, b"1"), FRAME_SIZE_ERROR),
    "half a setting": (b"", frame(SETTINGS, 0, 0, b"123"), FRAME_SIZE_ERROR),
    "settings of a stream": (b"", frame(SETTINGS, 0, 1), FRAME_SIZE_ERROR),
    "a first window that is too large": (
        b"",
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        FLOW_CONTROL_ERROR,
    ),
    "frames that are too small": (b"", frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 10)), PROTOCOL_ERROR),
    "a window of all beyond all bounds": (
        frame(SETTINGS),
        frame(WINDOW_UPDATE, 0, 0, number((1 << 31) - 1)),
        FLOW_CONTROL_ERROR,
    ),
    "a GOAWAY of four bytes": (frame(SETTINGS), frame(GOAWAY, 0, 0, bytes(4)), FRAME_SIZE_ERROR),
    "more than there is room for": (
        frame(SETTINGS),
        BEGUN + frame(DATA, 0, 1, bytes(64 * 1024)) * 9,
        FLOW_CONTROL_ERROR,
    ),
}


def test_pings_without_an_end_are_not_kept_for_a_replica_that_reads_nothing() -> None:
    engine = engine_of()

    with pytest.raises(ConnectionBroken) as found:
        engine.feed(memoryview(frame(PING, 0, 0, bytes(8)) * 10_010))

    assert found.value.code == ENHANCE_YOUR_CALM


def test_headers_that_are_too_large_end_their_call_alone() -> None:
    engine = engine_of()
    calls = [Told(), Told()]
    for call in calls:
        engine.ask(encoded(ASKED), (b"?",), call)
    large = block([*ANSWER, *[("x", "e" * 100)] * 2200])  # 150 KB as sent

    parts = [large[begin : begin + 60_000] for begin in range(0, len(large), 60_000)]
    kinds = [HEADERS, *[CONTINUATION] * (len(parts) - 1)]
    for kind, part in zip(kinds, parts, strict=True):
        engine.feed(memoryview(frame(kind, END_HEADERS if part is parts[-1] else 0, 1, part)))
    engine.feed(memoryview(frame(HEADERS, END_HEADERS, 3, block(ANSWER))))

    assert calls[0].over == [PROTOCOL_ERROR]
    assert calls[1].headers
    assert not calls[1].over


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize(("before", "frames", "code"), BREAKS.values(), ids=BREAKS)
def test_a_replica_that_breaks_the_protocol_ends_the_connection(
    before: bytes, frames: bytes, code: int, chunk: int
) -> None:
    engine = engine_of(before)
    engine.ask(encoded(ASKED), (b"?",), Told())

    def feed() -> None:
        for begin in range(0, len(frames), chunk):
            engine.feed(memoryview(frames)[begin : begin + chunk])

    with pytest.raises(ConnectionBroken) as found:
        feed()

    assert found.value.code == code


def test_blocks_that_come_again_are_known_and_others_forgotten() -> None:
    reader = BlockReader()
    known = reader.read(block(ANSWER))

    assert reader.read(block(ANSWER)) is known
    for each in range(1000):
        reader.read(block([(":status", "200"), ("grpc-message", f"error {each}")]))
    assert len(reader._remembered) <= 256
    assert reader.read(block(ANSWER)) == known
