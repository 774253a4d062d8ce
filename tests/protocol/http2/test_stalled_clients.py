"""Clients that stop in the middle: their calls and connections are given up, and nobody else's.

What is given up by looking again and again is looked at by hand here; what has a clock has a short one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hyperframe.frame import GoAwayFrame
from tritonpy.frontends.grpc.native import keepalive
from tritonpy.frontends.grpc.native.connection import GrpcConnection
from tritonpy.frontends.grpc.native.server import NativeGrpcServer
from tritonpy.frontends.grpc.native.stalled_clients import STALLED_SWEEPS
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ...on_loop import on_loop
from .grpc_cases import infer
from .raw import (
    END_STREAM,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    Answer,
    Http2Client,
    call,
    data,
    headers,
    message,
    request_headers,
    settings,
    window_update,
)

WHOLE = message(infer(contents=bytes(1000)))
LARGE = message(infer(contents=bytes(300_000)))
BEGUN = headers(1, request_headers("ModelInfer")) + data(1, WHOLE[:100])
STREAMING = headers(1, request_headers("ModelStreamInfer")) + data(1, WHOLE[:100])


class Watched:
    """A server, its connections, and its looks at who makes it wait, which come when a test says so."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.native: NativeGrpcServer = server.runtime.frontends.by_name["grpc"].state
        on_loop(server, self.native.listener.sweeper.stop)

    def look(self, times: int) -> None:
        """Look at all clients, as the server does every now and then."""
        for _ in range(times):
            on_loop(self.server, self.native.listener.sweeper.sweep)

    @property
    def held(self) -> int:
        """Bytes of requests."""
        return on_loop(self.server, lambda: self.server.runtime.admission.held)

    def connection(self, client: Http2Client) -> GrpcConnection | None:
        """The server's end of a client's connection, while it has it."""
        port = client.socket.getsockname()[1]
        return on_loop(
            self.server, lambda: next(filter(_is_from(port), self.native.listener.connections), None)
        )

    def queued(self, client: Http2Client, stream: int = 0) -> int:
        """Bytes of answers that wait for a client's windows."""
        connection = self.connection(client)
        assert connection is not None
        return on_loop(self.server, lambda: connection.engine.queued(stream))


def _is_from(port: int) -> Callable[[GrpcConnection], bool]:
    def is_from(connection: GrpcConnection) -> bool:
        transport = connection._transport
        return transport is not None and transport.get_extra_info("peername")[1] == port

    return is_from


@pytest.fixture(scope="module")
def watched(start: Callable[..., Server]) -> Watched:
    return Watched(start(grpc_http2_max_ping_strikes=0))


@pytest.fixture
def port(watched: Watched) -> int:
    return watched.server.grpc_port


@pytest.fixture
def client(port: int, dial: Callable[..., Http2Client]) -> Http2Client:
    found = dial(port)
    found.greet()
    return found


@pytest.fixture
def neighbour(port: int, dial: Callable[..., Http2Client]) -> Http2Client:
    """Another client, which must notice nothing."""
    found = dial(port)
    found.greet()
    return found


@pytest.mark.parametrize("begun", [BEGUN, STREAMING], ids=["unary", "stream"])
def test_an_upload_that_stops_is_timed_out_and_nothing_else(
    watched: Watched, client: Http2Client, neighbour: Http2Client, begun: bytes
) -> None:
    before = watched.held
    client.send(begun)
    for found in client.pong():  # all of it has been read
        Answer().take(found, 1, client.decoder)  # a stream's headers come at once
    assert watched.held > before
    watched.look(STALLED_SWEEPS)
    neighbour.send(headers(1, request_headers("ModelInfer")) + data(1, WHOLE[:100]))
    neighbour.pong()  # one that has stopped for a shorter time
    client.send(call(3, WHOLE, "ModelInfer"))
    assert client.answer(3).status == 0  # beside it, on the same connection
    watched.look(1)

    late = client.answer(1)
    client.send(call(5, WHOLE, "ModelInfer"))
    neighbour.send(data(1, WHOLE[100:], END_STREAM))

    assert (late.status, late.text) == (4, "The request's message did not arrive in time")
    assert client.answer(5).status == 0
    assert neighbour.answer(1).status == 0
    until(lambda: watched.held == before, lambda: f"{watched.held} bytes are held")


def test_an_upload_that_goes_on_slowly_is_not_dropped(watched: Watched, client: Http2Client) -> None:
    client.send(headers(1, request_headers("ModelInfer")))
    pieces = 3 * STALLED_SWEEPS
    for at in range(pieces):
        client.send(data(1, WHOLE[at : at + 1]))
        client.pong()
        watched.look(STALLED_SWEEPS - 1)
    client.send(data(1, WHOLE[pieces:], END_STREAM))

    assert client.answer().status == 0


def test_an_answer_that_is_given_no_window_is_dropped_with_its_memory(
    watched: Watched, port: int, dial: Callable[..., Http2Client], neighbour: Http2Client
) -> None:
    client = dial(port)
    client.greet((INITIAL_WINDOW_SIZE, 0))
    answers = {1: Answer(), 3: Answer()}
    for stream in answers:
        client.send(large_call(stream))
    until(lambda: watched.queued(client) > 600_000, lambda: f"{watched.queued(client)} bytes wait")
    for _ in range(STALLED_SWEEPS + 1):  # one of the two answers is taken, bit by bit
        client.send(window_update(3, 10))
        client.pong()
        watched.look(1)
    neighbour.send(call(1, WHOLE, "ModelInfer"))
    client.send(window_update(3, 1_000_000))
    for found in client.frames():
        for stream, answer in answers.items():
            answer.take(found, stream, client.decoder)
        if found.stream_id == 0 or getattr(found, "data", b""):
            client.send(window_update(0, 16_384))
        if all(answer.is_over for answer in answers.values()):
            break

    assert (answers[1].reset, answers[1].body) == ("CANCEL", b"")
    assert answers[3].status == 0
    assert neighbour.answer().status == 0
    assert watched.queued(client) == 0


def test_a_client_that_reads_nothing_is_dropped_with_all_that_waits_for_it(
    watched: Watched, port: int, dial: Callable[..., Http2Client], neighbour: Http2Client
) -> None:
    before = watched.held
    client = dial(port)
    client.greet((INITIAL_WINDOW_SIZE, 2**31 - 1))
    client.send(window_update(0, 2**31 - 1 - 65_535))
    connection = watched.connection(client)
    assert connection is not None
    stream = -1
    while not on_loop(watched.server, lambda: connection.is_blocked):  # until the system takes no more
        stream += 2
        client.send(large_call(stream))
    watched.look(STALLED_SWEEPS)
    neighbour.send(call(1, WHOLE, "ModelInfer"))
    assert neighbour.answer().status == 0
    assert watched.connection(client) is connection
    watched.look(1)

    until(lambda: watched.connection(client) is None)
    assert connection.calls == []
    until(lambda: watched.held == before, lambda: f"{watched.held} bytes are held")


@pytest.mark.parametrize(
    "sent",
    [b"", PREFACE[:10], PREFACE, PREFACE + settings()[:4]],
    ids=["nothing", "half a preface", "a preface", "half a frame header"],
)
def test_a_client_that_does_not_greet_is_dropped(
    watched: Watched,
    port: int,
    dial: Callable[..., Http2Client],
    neighbour: Http2Client,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
) -> None:
    monkeypatch.setattr(keepalive, "GREETING_S", 0.05)
    silent = dial(port)
    silent.send(sent)

    list(silent.frames())  # it ends

    until(lambda: watched.connection(silent) is None)
    neighbour.send(call(1, WHOLE, "ModelInfer"))
    assert neighbour.answer().status == 0


def test_half_a_frame_header_does_not_keep_an_idle_connection(
    start: Callable[..., Server], dial: Callable[..., Http2Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "_LEAVING_S", 0.05)  # it cannot answer that it has heard it
    client = dial(start(idle_timeout_s=0.1).grpc_port)
    client.greet()
    client.send(settings()[:4])

    first, *_, last = (found for found in client.frames() if isinstance(found, GoAwayFrame))

    assert first.additional_data == b"max_idle"
    assert (last.last_stream_id, last.error_code) == (0, 0)


def large_call(stream: int) -> bytes:
    """A call of `LARGE`, in frames of a size that every server takes."""
    pieces = [data(stream, LARGE[at : at + 16_384]) for at in range(0, len(LARGE), 16_384)]
    return headers(stream, request_headers("ModelInfer")) + b"".join(pieces) + data(stream, b"", END_STREAM)
