"""Requests over gRPC: unary calls, many at once on a connection, whose bytes libnghttp2 frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import unquote

import ngh2
from ngh2 import events
from ngh2.exceptions import NGH2Error
from tritonpy.frontends.grpc.status import Status
from tritonpy.protos import messages
from tritonpy.protos.pool import SERVICE_NAME

from tritonpy_bench.answers import called
from tritonpy_bench.calls import Call, Place, looked_at
from tritonpy_bench.errors import BenchError

CALLS_OF_A_CONNECTION = 6
"""So many calls are made at once before another connection is opened; perf_analyzer does so, too."""

HEAD_BYTE_SIZE = 5
"""Bytes before each message: whether it is compressed, and its length."""

NO_RESPONSE = "what the server answered is no response"
"""Of messages that are none."""

_SWEEP_S = 1.0
_WINDOW = 1 << 24
_CANCEL = 8
_CLOSED = "the server closed the connection without an answer"

Headers = Sequence[tuple[bytes, bytes]]


def request_headers(place: Place, method: str, metadata: Sequence[tuple[str, str]]) -> Headers:
    """The headers that begin a call of a method of the service."""
    own = [
        (":method", "POST"),
        (":scheme", "https" if place.is_tls else "http"),
        (":path", f"/{SERVICE_NAME}/{method}"),
        (":authority", str(place)),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    return [(name.encode(), value.encode()) for name, value in (*own, *metadata)]


class GrpcTransport:
    """Satisfies `Transport`.

    Args:
        place: of the server.
        timeout_s: after which a call fails and is cancelled.
        metadata: of each call.
        reads: calls look at responses.
    """

    def __init__(
        self,
        place: Place,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
        reads: bool = False,
    ) -> None:
        self._reads = reads
        self._place = place
        self._timeout_ns = int(timeout_s * 1e9)
        self._context = place.context(["h2"])
        self._headers = request_headers(place, "ModelInfer", metadata)
        self._connections: list[Connection] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, count: int) -> None:
        if self._sweeper is None:
            self._sweep()
        try:
            for _ in range(len(self._connections), -(-count // CALLS_OF_A_CONNECTION)):
                await self._connect()
        except OSError as error:
            raise BenchError(f"no server answers at {self._place}: {error.strerror or error}") from None

    def send(self, request: bytes, call: Call) -> None:
        connections = self._connections
        for _ in range(len(connections)):
            self._turn = (self._turn + 1) % len(connections)
            connection = connections[self._turn]
            if len(connection.calls) < CALLS_OF_A_CONNECTION and not connection.is_leaving:
                self._begin(connection, request, call)
                return
        task = asyncio.get_running_loop().create_task(self._open_and_send(request, call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._opening:
            task.cancel()
        for connection in list(self._connections):
            connection.calls.clear()
            connection.transport.abort()
        await asyncio.sleep(0)  # the connections hear of it

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            self._new_connection,
            self._place.host,
            self._place.port,
            ssl=self._context,
        )
        return connection

    async def _open_and_send(self, request: bytes, call: Call) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            call.answered(f"no connection: {error.strerror or error}")
            return
        self._begin(connection, request, call)

    def _begin(self, connection: Connection, request: bytes, call: Call) -> None:
        connection.send(request, call)

    def _new_connection(self) -> Connection:
        kind = _ReadConnection if self._reads else Connection
        return kind(self._headers, self._connections)

    def _sweep(self) -> None:
        limit_ns = time.perf_counter_ns() - self._timeout_ns
        for connection in list(self._connections):
            connection.give_up(limit_ns, f"no answer within {self._timeout_ns / 1e9:g} s")
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


class Connection(asyncio.Protocol):
    """One connection of HTTP/2, and the calls on it by their streams.

    Attributes:
        came_ns: when the bytes came that are looked at now.
    """

    transport: asyncio.Transport

    def __init__(self, headers: Headers, connections: list[Connection]) -> None:
        self.calls: dict[int, Call] = {}
        self.is_leaving = False  # it takes no new calls
        self.came_ns = 0
        self._headers = headers
        self._all = connections
        self._engine = ngh2.Connection(ngh2.Role.CLIENT)
        self._is_flushing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast(asyncio.Transport, transport)
        self._engine.initiate_connection(
            {ngh2.Setting.ENABLE_PUSH: 0, ngh2.Setting.INITIAL_WINDOW_SIZE: _WINDOW}
        )
        self._engine.set_local_window_size(_WINDOW)
        self._all.append(self)
        self._flush()

    def send(self, request: bytes, call: Call) -> None:
        """Begin a call; it leaves with all others that begin in this turn of the loop."""
        try:
            stream = self._engine.send_request(self._headers)
            self._engine.send_data(stream, request, end_stream=True)
        except NGH2Error as error:  # the server has said that it closes this connection
            self.leave()
            asyncio.get_running_loop().call_soon(call.answered, f"no call was possible: {error}")
            return
        self.calls[stream] = call
        self._flush_soon()

    def begin_stream(self, call: Call) -> int:
        """Begin a call of which several messages are sent; its number.

        Raises:
            NGH2Error: the server takes no more calls.
        """
        stream = self._engine.send_request(self._headers)
        self.calls[stream] = call
        self._flush_soon()
        return stream

    def send_on(self, stream: int, message: bytes) -> None:
        """Send a message on a stream.

        Raises:
            NGH2Error: the stream is gone.
        """
        self._engine.send_data(stream, message)
        self._flush_soon()

    def reset(self, stream: int, code: int) -> None:
        """End a call from this side, which is told nothing more."""
        self.calls.pop(stream, None)
        with suppress(NGH2Error):
            self._engine.reset_stream(stream, code)
        self._flush_soon()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.came_ns = time.perf_counter_ns()
        try:
            self._engine.receive_data(data)
        except NGH2Error as error:
            self._end(f"what the server answered is no HTTP/2: {error}")
            return
        self._is_flushing = True  # what is sent meanwhile leaves with the rest below
        for event in self._engine.events():
            self.told(event)
        self._flush()

    def told(self, event: events.Event) -> None:
        """Do what follows from something that the server has sent."""
        follows = _TOLD.get(type(event))
        if follows is not None:
            follows(self, event)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end(str(exc) if exc else _CLOSED)

    def give_up(self, limit_ns: int, text: str) -> None:
        """Fail the calls that were sent before a time."""
        late = [stream for stream, call in self.calls.items() if call.sent_ns < limit_ns]
        for stream in late:
            with suppress(NGH2Error):
                self._engine.reset_stream(stream, _CANCEL)
            self._answer(stream, text)
        if late:
            self._flush()

    def _flush_soon(self) -> None:
        """Send all that is begun in this turn of the loop at once."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if data := self._engine.data_to_send():
            self.transport.write(data)

    def _answer(self, stream: int, error: str | None, came_ns: int = 0) -> None:
        call = self.calls.pop(stream, None)
        if call is not None:
            call.answered(error, came_ns)

    def leave(self) -> None:
        """Take no new calls, and close when the last is over."""
        self.is_leaving = True
        if not self.calls:
            self.transport.close()

    def _end(self, text: str) -> None:
        self.is_leaving = True
        with suppress(ValueError):
            self._all.remove(self)
        self.transport.abort()
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.answered(text)

    def on_trailers(self, event: events.TrailersReceived) -> None:
        """The status of a call."""
        self._answer(event.stream_id, status_error(event.headers), self.came_ns)

    def on_response(self, event: events.ResponseReceived) -> None:
        """The headers of an answer, which hold the status if nothing follows."""
        if event.end_stream:
            self._answer(event.stream_id, status_error(event.headers), self.came_ns)

    def on_reset(self, event: events.StreamReset) -> None:
        """The server has given up a call."""
        self._answer(event.stream_id, f"the server reset the call (code {event.error_code} of HTTP/2)")

    def on_closed(self, event: events.StreamClosed) -> None:
        """A call is over; one without a status has failed."""
        self._answer(event.stream_id, "the call ended without a status")
        if self.is_leaving:
            self.leave()

    def on_goaway(self, event: events.GoAwayReceived) -> None:
        """The server takes no new calls on this connection."""
        self.leave()


class _ReadConnection(Connection):
    """One whose answers calls look at."""

    def __init__(self, headers: Headers, connections: list[Connection]) -> None:
        super().__init__(headers, connections)
        self._messages: dict[int, bytearray] = {}

    def told(self, event: events.Event) -> None:
        if isinstance(event, events.DataReceived):
            self._messages.setdefault(event.stream_id, bytearray()).extend(event.data)
        else:
            super().told(event)

    def reset(self, stream: int, code: int) -> None:
        self._messages.pop(stream, None)
        super().reset(stream, code)

    def _answer(self, stream: int, error: str | None, came_ns: int = 0) -> None:
        message = self._messages.pop(stream, b"")
        call = self.calls.get(stream)
        if error is None and call is not None:
            try:
                outputs = called(messages.ModelInferResponse.FromString(bytes(message[HEAD_BYTE_SIZE:])))
            except Exception:  # a server may answer anything, and no request may be lost for it
                error = NO_RESPONSE
            else:
                error = looked_at(call, outputs)
        super()._answer(stream, error, came_ns)


def status_error(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """What a call ended with, from its trailers; None if it succeeded."""
    found = dict(headers)
    number = found.get(b"grpc-status")
    if number == b"0":
        return None
    if number is None:
        return f"no gRPC answers there (HTTP status {found.get(b':status', b'?').decode()})"
    try:
        name = Status(int(number)).name
    except ValueError:
        name = f"status {number.decode(errors='replace')}"
    return f"{name}: {unquote(found.get(b'grpc-message', b'').decode(errors='replace'))}"


_TOLD: dict[type[events.Event], Callable[[Connection, Any], None]] = {
    events.ResponseReceived: Connection.on_response,
    events.TrailersReceived: Connection.on_trailers,
    events.StreamReset: Connection.on_reset,
    events.StreamClosed: Connection.on_closed,
    events.GoAwayReceived: Connection.on_goaway,
}
