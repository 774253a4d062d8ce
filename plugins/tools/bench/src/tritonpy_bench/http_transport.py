"""Requests over HTTP/1.1: connections with one request at a time, as many as there are calls at once."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import cast

import httptools

from tritonpy_bench.answers import Reader
from tritonpy_bench.calls import Call, Place, looked_at
from tritonpy_bench.errors import BenchError

_SWEEP_S = 1.0
_CLOSED = "the server closed the connection without an answer"


class HttpTransport:
    """Satisfies `Transport`.

    Args:
        place: of the server.
        timeout_s: after which a call fails and its connection is closed.
        has_events: answers are streams of events, each a response.
        reader: of answers, which calls look at then; None if nobody does.
    """

    def __init__(
        self,
        place: Place,
        timeout_s: float,
        has_events: bool = False,
        reader: Reader | None = None,
    ) -> None:
        self._reader = reader
        self._kind = _EventConnection if has_events else _ReadConnection if reader else _Connection
        self._place = place
        self._timeout_ns = int(timeout_s * 1e9)
        self._context = place.context()
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, count: int) -> None:
        if self._sweeper is None:
            self._sweep()
        try:
            for begin in range(0, count, 64):  # the queue of the server's port is not endless
                opened = [self._connect() for _ in range(begin, min(begin + 64, count))]
                self._idle += await asyncio.gather(*opened)
        except OSError as error:
            raise BenchError(f"no server answers at {self._place}: {error.strerror or error}") from None

    def send(self, request: bytes, call: Call) -> None:
        if self._idle:
            connection = self._idle.pop()
            connection.call = call
            connection.transport.write(request)
            return
        task = asyncio.get_running_loop().create_task(self._open_and_send(request, call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._opening:
            task.cancel()
        for connection in list(self._all):
            connection.call = None
            connection.transport.abort()
        await asyncio.sleep(0)  # the connections hear of it

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            lambda: self._kind(self._idle, self._all, self._reader),
            self._place.host,
            self._place.port,
            ssl=self._context,
        )
        return made

    async def _open_and_send(self, request: bytes, call: Call) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            call.answered(f"no connection: {error.strerror or error}")
            return
        connection.call = call
        connection.transport.write(request)

    def _sweep(self) -> None:
        limit_ns = time.perf_counter_ns() - self._timeout_ns
        for connection in list(self._all):
            if connection.call is not None and connection.call.sent_ns < limit_ns:
                connection.fail(f"no answer within {self._timeout_ns / 1e9:g} s")
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


class _Connection(asyncio.Protocol):
    """One connection; httptools calls the methods that begin with `on`."""

    transport: asyncio.Transport

    def __init__(self, idle: list[_Connection], connections: set[_Connection], reader: Reader | None) -> None:
        self.call: Call | None = None
        self._reader = reader
        self._idle = idle
        self._all = connections
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._came_ns = 0  # when the bytes came that are looked at now

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._all.add(self)

    def data_received(self, data: bytes) -> None:
        self._came_ns = time.perf_counter_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"what the server answered is no HTTP: {error}")

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        call, body = self.call, self._body
        self._body = []
        if call is None:  # an answer that nobody has asked for
            self.transport.abort()
            return
        self.call = None
        status = self._parser.get_status_code()
        if self._parser.should_keep_alive():
            self._idle.append(self)
        else:
            self.transport.close()
        call.answered(self._outcome(call, status, body), self._came_ns)

    def _outcome(self, call: Call, status: int, body: list[bytes]) -> str | None:
        return None if status == 200 else f"HTTP {status}: {_error(b''.join(body))}"

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        with suppress(ValueError):
            self._idle.remove(self)
        self.fail(str(exc) if exc else _CLOSED)

    def fail(self, text: str) -> None:
        """End the call that waits, and the connection."""
        call, self.call = self.call, None
        self.transport.abort()
        if call is not None:
            call.answered(text)


class _ReadConnection(_Connection):
    """One whose answers calls look at."""

    def __init__(self, idle: list[_Connection], connections: set[_Connection], reader: Reader | None) -> None:
        super().__init__(idle, connections, reader)
        self._head_byte_size: int | None = None

    def on_message_begin(self) -> None:
        self._head_byte_size = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"inference-header-content-length" and value.isdigit():
            self._head_byte_size = int(value)

    def _outcome(self, call: Call, status: int, body: list[bytes]) -> str | None:
        if error := super()._outcome(call, status, body):
            return error
        assert self._reader is not None
        return _read(call, self._reader, b"".join(body), self._head_byte_size)


class _EventConnection(_Connection):
    """One whose answers are events, which begin with `data: ` and end with an empty line."""

    def __init__(self, idle: list[_Connection], connections: set[_Connection], reader: Reader | None) -> None:
        super().__init__(idle, connections, reader)
        self._partial = b""
        self._event_error: str | None = None

    def on_body(self, data: bytes) -> None:
        if self._parser.get_status_code() != 200:
            super().on_body(data)
            return
        *events, self._partial = (self._partial + data).split(b"\n\n")
        for event in events:
            if event.startswith(b'data: {"error"') or event.startswith(b'data:{"error"'):
                self._event_error = _error(event.partition(b":")[2])
            elif self.call is not None:
                if self._reader is not None:
                    error = _read(self.call, self._reader, event.partition(b":")[2])
                    self._event_error = self._event_error or error
                self.call.responded(self._came_ns)

    def _outcome(self, call: Call, status: int, body: list[bytes]) -> str | None:
        error, self._event_error = self._event_error, None
        self._partial = b""
        return error or super()._outcome(call, status, body)


def _read(call: Call, reader: Reader, body: bytes, head_byte_size: int | None = None) -> str | None:
    """Let a call look at a response; what is wrong with it."""
    try:
        if reader.is_generate:
            outputs = reader.generated(body)
        else:
            outputs = reader.infer(body, head_byte_size)
    except Exception:  # a server may answer anything, and no request may be lost for it
        return f"what the server answered is no response: {body[:80].decode(errors='replace')}"
    return looked_at(call, outputs)


def _error(body: bytes) -> str:
    """The text of an error answer."""
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(body)["error"])
    return body.decode(errors="replace")
