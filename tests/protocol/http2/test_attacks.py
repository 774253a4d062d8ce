"""Clients that mean harm: they cost the server little, and its other clients nothing.

Each attack is a client of its own. What is looked at: how the connection ends or that it is held within
bounds, how much memory the process took, and that another client is answered before, meanwhile and after.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import socket
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from .conftest import Stage
from .grpc_cases import infer
from .raw import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    SETTINGS,
    Answer,
    Http2Client,
    block,
    call,
    data,
    error_name,
    frame,
    headers,
    message,
    ping,
    request_headers,
    reset,
    settings,
    window_update,
)

MIB = 1024 * 1024
MOST_CPU_S = 20  # for any attack, both sides of it together; they take a second or two
INFER = block(request_headers("ModelInfer"))
STREAM = block(request_headers("ModelStreamInfer"))


@pytest.fixture(scope="module")
def attacked(start: Callable[..., Server]) -> Server:
    """A server as it is by default, but for the size of what was compressed."""
    return start(max_inflight_byte_size=0, grpc_max_inflated_byte_size=8 * MIB)


@pytest.fixture
def neighbour(attacked: Server, dial: Callable[..., Http2Client]) -> Iterator[Neighbour]:
    client = dial(attacked.grpc_port)
    client.greet()
    neighbour = Neighbour(client)
    neighbour.asks()
    yield neighbour
    neighbour.asks()


class Neighbour:
    """Another client, which must notice nothing."""

    def __init__(self, client: Http2Client) -> None:
        self._client = client
        self._stream = -1

    def asks(self) -> None:
        self._stream += 2
        self._client.send(call(self._stream, message(infer(contents=b"ours")), method="ModelInfer"))
        answer = self._client.answer(self._stream)
        assert answer.status == 0, (answer.status, answer.text, answer.goaway)


@pytest.fixture
def attacker(attacked: Server, dial: Callable[..., Http2Client]) -> Http2Client:
    client = dial(attacked.grpc_port)
    client.greet()
    return client


@contextlib.contextmanager
def takes_no_more_than(mebibytes: float) -> Iterator[None]:
    """The memory of this process, server and clients, grows by no more than that, and its work is bounded."""
    process = psutil.Process()
    gc.collect()
    before, begun = process.memory_info().rss, time.process_time()
    yield
    grown = (process.memory_info().rss - before) / MIB
    worked_s = time.process_time() - begun
    assert grown < mebibytes, f"{grown:.0f} MiB more"
    assert worked_s < MOST_CPU_S, f"{worked_s:.1f} s of CPU"


def pour(client: Http2Client, piece: bytes, most: int) -> int:
    """Send the same bytes again and again until `most` or the server takes no more; return how many."""
    sent = 0
    client.socket.settimeout(1)
    view = memoryview(piece)
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < most:
            at = 0
            while at < len(view):
                at += client.socket.send(view[at:])
            sent += len(view)
    client.socket.settimeout(30)
    return sent


def last_words(client: Http2Client) -> str:
    """The error of the GOAWAY before the connection was closed; "closed" for none."""
    with contextlib.suppress(TimeoutError):
        goaway = client.end()
        return "closed" if goaway is None else error_name(goaway.error_code)
    return "open"


def test_rapid_reset(attacked: Server, attacker: Http2Client, neighbour: Neighbour, stage: Stage) -> None:
    """Calls that are taken back at once are counted, and cost their connection when there are many."""
    body = data(1, message(infer("staged", id="reset")), END_STREAM)[9:]
    head = frame(HEADERS, END_HEADERS, 1, INFER)

    with takes_no_more_than(64):
        for first in range(0, 2000, 100):
            streams = range(2 * first + 1, 2 * first + 201, 2)
            attacker.send(
                *(
                    frame(HEADERS, END_HEADERS, stream, head[9:])
                    + data(stream, body, END_STREAM)
                    + reset(stream)
                    for stream in streams
                )
            )
            if first == 500:
                neighbour.asks()
        assert last_words(attacker) in ("ENHANCE_YOUR_CALM", "INTERNAL_ERROR", "PROTOCOL_ERROR", "closed")

    stage.is_open.set()
    assert len(stage.ids) <= 2  # one was executed before it was taken back; the others never began


@pytest.mark.parametrize(
    ("name", "provoke"),
    [
        ("window of 0", lambda stream: window_update(stream, 0)),
        ("window overflow", lambda stream: window_update(stream, 2**31 - 1)),
        ("data after the end", lambda stream: data(stream, b"x")),
        ("bad trailers", lambda stream: headers(stream, [(":path", "/")], END_HEADERS | END_STREAM)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_made_you_reset(
    attacked: Server,
    attacker: Http2Client,
    neighbour: Neighbour,
    stage: Stage,
    name: str,
    provoke: Callable[[int], bytes],
) -> None:
    """Calls that a client has the server reset, by breaking the rules of their streams, are counted too."""
    body = message(infer("staged", id=name))
    with takes_no_more_than(64):
        for first in range(0, 20_000, 200):
            for stream in range(2 * first + 1, 2 * first + 401, 2):
                attacker.send(
                    frame(HEADERS, END_HEADERS, stream, INFER)
                    + data(stream, body, END_STREAM)
                    + provoke(stream)
                )
        assert last_words(attacker) != "open"
        neighbour.asks()

    stage.is_open.set()
    assert stage.ids.count(name) <= 2


def test_continuation_flood(attacker: Http2Client, neighbour: Neighbour) -> None:
    with takes_no_more_than(32):
        attacker.send(frame(HEADERS, 0, 1, INFER))
        literal = b"\0\x03x-a\x7f" + b"a" * 127
        sent = pour(attacker, frame(CONTINUATION, 0, 1, literal * 100), 50 * MIB)
        assert last_words(attacker) != "open"
    assert sent < 20 * MIB


def test_flood_of_empty_continuations(attacker: Http2Client, neighbour: Neighbour) -> None:
    with takes_no_more_than(16):
        attacker.send(frame(HEADERS, 0, 1, INFER))
        pour(attacker, frame(CONTINUATION, 0, 1) * 1000, 10 * MIB)
        assert last_words(attacker) != "open"


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("SETTINGS", settings((INITIAL_WINDOW_SIZE, 1000)) * 1000),
        ("empty SETTINGS", settings() * 1000),
        ("PING", ping() * 1000),
        ("acknowledgements", frame(SETTINGS, ACK) * 1000),
        ("pongs", ping(flags=ACK) * 1000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_flood_of_frames_that_are_answered(
    attacker: Http2Client, neighbour: Neighbour, name: str, piece: bytes
) -> None:
    """A client that reads no answers is read no more itself, or loses its connection."""
    with takes_no_more_than(32):
        pour(attacker, piece, 20 * MIB)
        neighbour.asks()


def test_pings_are_counted(attacker: Http2Client, neighbour: Neighbour) -> None:
    attacker.send(ping() * 20)

    goaway = attacker.end()

    assert goaway is not None
    assert error_name(goaway.error_code) == "ENHANCE_YOUR_CALM"
    assert goaway.additional_data == b"too_many_pings"


def test_empty_data_flood(attacker: Http2Client, neighbour: Neighbour) -> None:
    with takes_no_more_than(32):
        attacker.send(frame(HEADERS, END_HEADERS, 1, STREAM))
        pour(attacker, data(1) * 1000, 5 * MIB)
        neighbour.asks()
        ended = attacker.answer()
    assert ended.goaway or ended.is_over


def test_padding_flood(attacker: Http2Client, neighbour: Neighbour) -> None:
    """DATA that is nothing but padding goes against the windows, and room for it is given back."""
    with takes_no_more_than(32):
        attacker.send(frame(HEADERS, END_HEADERS, 1, STREAM))
        pour(attacker, data(1, b"\xff" + bytes(255), 0x8) * 100, 5 * MIB)
        neighbour.asks()


def test_unknown_frames_flood(attacker: Http2Client, neighbour: Neighbour) -> None:
    with takes_no_more_than(32):
        pour(attacker, frame(0xBE, 0, 0, bytes(100)) * 100, 20 * MIB)
        neighbour.asks()


def test_hpack_bomb(attacked: Server, dial: Callable[..., Http2Client], neighbour: Neighbour) -> None:
    """Bytes that each stand for an entry of 4 KiB: headers are limited by what they become."""
    entry = b"\x40\x01x\x7f\xd1\x1e" + b"a" * 3800 + b"b" * 200
    bomb = INFER + entry + b"\xbe" * 12_000
    with takes_no_more_than(48):
        for _ in range(20):
            client = dial(attacked.grpc_port)
            client.greet()
            for stream in range(1, 11, 2):
                client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, bomb))
            answer = client.answer()
            assert answer.status in (8, None)
            assert answer.status or answer.reset or answer.goaway or last_words(client) == "closed"
        neighbour.asks()


def test_tiny_windows(attacked: Server, dial: Callable[..., Http2Client], neighbour: Neighbour) -> None:
    """Answers that a client does not take are bounded: after so many its calls are refused."""
    client = dial(attacked.grpc_port)
    client.greet((INITIAL_WINDOW_SIZE, 0))
    body = message(infer(contents=bytes(400_000)))
    pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)]
    room = 65_535
    answers: list[Answer] = []

    def take() -> None:
        nonlocal room
        found = client.frame()
        answers[-1].take(found, 2 * len(answers) - 1, client.decoder)
        room += getattr(found, "window_increment", 0) if found.stream_id == 0 else 0

    with takes_no_more_than(128):  # of 200 MB
        for stream in range(1, 1001, 2):
            answers.append(Answer())
            client.send(frame(HEADERS, END_HEADERS, stream, INFER))
            for number, piece in enumerate(pieces):
                while room < len(piece):
                    take()
                room -= len(piece)
                client.send(data(stream, piece, END_STREAM if number == len(pieces) - 1 else 0))
            while not answers[-1].headers:  # which need no room
                take()
        neighbour.asks()
    assert {answer.status for answer in answers if answer.is_over} == {8}


def test_one_byte_at_a_time(attacked: Server, dial: Callable[..., Http2Client], neighbour: Neighbour) -> None:
    """A client that gives room byte by byte gets its answer byte by byte; others do not wait for it."""
    client = dial(attacked.grpc_port)
    client.greet((INITIAL_WINDOW_SIZE, 0))
    client.send(call(1, message(infer(contents=bytes(500))), method="ModelInfer"))
    with takes_no_more_than(16):
        for _ in range(300):
            client.send(window_update(1, 1))
        neighbour.asks()
    client.send(window_update(1, 10_000))
    assert client.answer().status == 0


def test_announced_lengths(attacker: Http2Client, neighbour: Neighbour) -> None:
    """What is announced takes no memory before it comes."""
    with takes_no_more_than(32):
        attacker.send(
            *(
                frame(HEADERS, END_HEADERS, stream, INFER) + data(stream, message(b"x", length=7_000_000))
                for stream in range(1, 200, 2)
            )
        )
        attacker.pong()
        neighbour.asks()


def test_messages_in_crumbs(attacker: Http2Client, neighbour: Neighbour) -> None:
    """Bytes that come two by two take little more memory than they are."""
    with takes_no_more_than(24):
        for stream in range(1, 40, 2):
            attacker.send(
                frame(HEADERS, END_HEADERS, stream, INFER), data(stream, message(b"", length=60_000))
            )
            attacker.send(data(stream, b"ab") * 25_000)
        attacker.pong()
        neighbour.asks()


def test_compression_bombs(attacker: Http2Client, neighbour: Neighbour) -> None:
    bomb = message(gzip.compress(bytes(200 * MIB)), 1)
    head = block(request_headers("ModelInfer", grpc_encoding="gzip"))
    with takes_no_more_than(64):
        for stream in (1, 3, 5, 7, 9):
            attacker.send(frame(HEADERS, END_HEADERS, stream, head))
            for at in range(0, len(bomb), 16_384):
                attacker.send(
                    data(stream, bomb[at : at + 16_384], END_STREAM if at + 16_384 >= len(bomb) else 0)
                )
        assert attacker.answer(9).status in (3, 8, 14)
        neighbour.asks()


def test_calls_that_never_end(attacker: Http2Client, neighbour: Neighbour) -> None:
    """Streams that are open and silent hold little, and one more than is allowed ends the connection."""
    allowed = attacker.peer_settings[MAX_CONCURRENT_STREAMS]
    silent = [frame(HEADERS, END_HEADERS, 2 * number + 1, STREAM) for number in range(allowed + 1)]
    with takes_no_more_than(48):
        attacker.send(*silent[:-1])
        attacker.pong()
        neighbour.asks()
        attacker.send(silent[-1])
    assert last_words(attacker) == "PROTOCOL_ERROR"


def test_half_open_connections(attacked: Server, neighbour: Neighbour) -> None:
    """Many connections that say nothing take little, and nobody's place."""
    with contextlib.ExitStack() as stack, takes_no_more_than(64):
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", attacked.grpc_port), timeout=30))
        neighbour.asks()


def test_nothing_is_held_after_all_of_them(attacked: Server, neighbour: Neighbour) -> None:
    until(lambda: attacked.runtime.admission.held == 0)
