"""Connections to the HTTP port of a replica: one request at a time on each, kept for the next one.

A body of known length is received into a buffer of its size; one in chunks is handed on as it comes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

import httptools
import numpy as np

from tritonpy_router.replica import Place

Header = tuple[bytes, bytes]
Chunk = bytes | memoryview

_SCRATCH_BYTE_SIZE = 256 * 1024
_LARGE_BODY = 64 * 1024
_MOST_HEADER_BYTES = 256 * 1024
_CONNECT_S = 5.0


class Exchange(Protocol):
    """Takes the answer to one request; nothing more comes after `on_end` or `on_lost`."""

    def on_head(self, status: int, headers: list[Header], length: int | None) -> None:
        """The status and headers have come; `length` is None for a body in chunks."""

    def on_body(self, data: Chunk) -> None:
        """A piece of the body; with a length it comes whole, in one piece."""

    def on_end(self) -> None:
        """The answer is complete."""

    def on_lost(self, error: str) -> None:
        """The connection is gone before the answer was complete."""


class HttpUpstream(asyncio.BufferedProtocol):
    """One connection to a replica; on the loop only.

    Args:
        scratch: where small reads land; one for all where a read is complete before the next begins.
        on_free: called when an answer is complete and the connection may take the next request.
        on_close: called when the connection is over.
    """

    __slots__ = (
        "_body",
        "_exchange",
        "_filled",
        "_head_bytes",
        "_headers",
        "_is_chunked",
        "_keeps",
        "_length",
        "_on_close",
        "_on_free",
        "_parser",
        "_scratch",
        "_status",
        "_transport",
        "_view",
    )

    def __init__(
        self,
        scratch: memoryview,
        on_free: Callable[[HttpUpstream], None],
        on_close: Callable[[HttpUpstream], None],
    ) -> None:
        self._scratch = scratch
        self._on_free = on_free
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._length: int | None = None
        self._view: memoryview | None = None
        self._begin()

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: Chunk, exchange: Exchange) -> None:
        """Send a request; a body leaves from where it is."""
        transport = self._transport
        assert transport is not None  # it is open
        self._exchange = exchange
        if len(body) > _LARGE_BODY:
            transport.writelines([head, body])
        else:
            transport.write(head + body)

    def pause(self) -> None:
        """Read no more of the answer until `resume`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection: nobody wants the answer. Its exchange hears nothing more."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Drop the connection; its exchange hears that it is lost."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._transport = None
        exchange, self._exchange = self._exchange, None
        self._on_close(self)
        if exchange is not None:
            exchange.on_lost(str(exc) if exc is not None else "it closed the connection")

    def eof_received(self) -> bool:
        """The replica sends no more."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._scratch if self._view is None else self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._view is not None:
            self._filled += nbytes
            if self._filled == len(self._view):
                # The parser still waits for this body.
                self._parser = httptools.HttpResponseParser(self)
                self._complete(self._view)
            return
        try:
            self._parser.feed_data(self._scratch[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            exchange, self._exchange = self._exchange, None
            self.abort()
            if exchange is not None:
                exchange.on_lost(f"its answer cannot be read: {exc}")

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _MOST_HEADER_BYTES:
            raise ValueError("headers are too large")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """All headers are here."""
        parser = self._parser
        self._status = parser.get_status_code()
        self._keeps = parser.should_keep_alive()
        length = None
        for name, value in self._headers:
            if name.lower() == b"content-length":
                length = int(value)
        self._length = length
        if self._exchange is not None and self._status >= 200:
            self._exchange.on_head(self._status, self._headers, length)

    def on_body(self, data: bytes) -> None:
        """Part of a body."""
        exchange = self._exchange
        if exchange is None:
            return
        length = self._length
        if length is None or len(data) == length:
            exchange.on_body(data)
        elif length > _LARGE_BODY and not self._body:
            self._view = np.empty(length, np.uint8).data  # which is not filled with zeros first
            self._view[: len(data)] = data
            self._filled = len(data)
        else:
            self._body += data
            if len(self._body) == length:
                exchange.on_body(bytes(self._body))

    def on_message_complete(self) -> None:
        """The answer is complete, unless its body goes on in `_view`."""
        if self._view is None:
            self._complete(None)

    # Inside.

    def _begin(self) -> None:
        self._headers: list[Header] = []
        self._head_bytes = 0
        self._status = 0
        self._length = None
        self._keeps = True
        self._body = bytearray()
        self._view = None
        self._filled = 0

    def _complete(self, body: memoryview | None) -> None:
        exchange, status, keeps = self._exchange, self._status, self._keeps
        self._begin()
        if status < 200:  # the answer follows
            return
        self._exchange = None
        if exchange is None:
            self.abort()  # it was not asked for
            return
        if body is not None:
            exchange.on_body(body)
        if keeps and self.is_open:
            self.resume()  # its client was slow to the end, and the next one need not be
            self._on_free(self)
        elif self._transport is not None:
            self._transport.close()
        exchange.on_end()


class HttpPool:
    """The connections to one replica; on the loop only.

    Args:
        place: where it is.
        tls: how its port is encrypted; None for not.
    """

    MOST_IDLE = 512

    def __init__(self, place: Place, tls: ssl.SSLContext | None) -> None:
        self._place = place
        self._tls = tls
        self._idle: list[HttpUpstream] = []
        self._all: set[HttpUpstream] = set()
        self._shared = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        self._is_closed = False

    def take(self) -> HttpUpstream | None:
        """A connection that is open and free; None if one has to be made."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def connect(self) -> HttpUpstream:
        """Make a connection.

        Raises:
            OSError: it cannot be made.
            TimeoutError: it takes too long.
        """
        loop = asyncio.get_running_loop()
        scratch = self._shared
        if type(loop).__name__ == "ProactorEventLoop":  # reads in the background
            scratch = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        place = self._place
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: HttpUpstream(scratch, self._free, self._lost),
                place.host,
                place.http_port,
                ssl=self._tls,
            )
        self._all.add(connection)
        if self._is_closed:
            connection.drop()
        return connection

    def close(self) -> None:
        """Close those that are free, and the others when they are."""
        self._is_closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def drop(self) -> None:
        """End all connections, and with them what is under way on them."""
        for connection in list(self._all):
            connection.drop()

    def _free(self, connection: HttpUpstream) -> None:
        if self._is_closed or len(self._idle) >= self.MOST_IDLE:
            connection.abort()
        else:
            self._idle.append(connection)

    def _lost(self, connection: HttpUpstream) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
