"""A response whose body is written piece by piece, as it comes into being."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tritonpy.frontends.http.connection.message import Chunk


class ResponseStream:
    """The body of one response; made by `HttpConnection.start_stream`, on the loop only.

    HTTP/1.1 clients receive each piece as a chunk. Those of HTTP/1.0 know no chunks: for them the body ends
    where the connection does.

    Args:
        transport: of the client; None when it is gone already.
        head: the status line and headers; written at once.
        is_chunked: whether the client understands chunks.
        on_end: told once, when the stream is ended.

    Attributes:
        on_caught_up: called when the client has read what made `write` return False, or is gone.
        is_open: False once the stream was ended, or its client is gone.
        is_paused: whether the client reads slower than we write.
        byte_size: of the pieces written so far.
    """

    __slots__ = (
        "_is_chunked",
        "_on_end",
        "_transport",
        "byte_size",
        "head",
        "is_open",
        "is_paused",
        "on_caught_up",
    )

    def __init__(
        self,
        transport: asyncio.Transport | None,
        head: bytes,
        is_chunked: bool,
        on_end: Callable[[], None],
    ) -> None:
        self._transport = transport
        self.head = head
        self._is_chunked = is_chunked
        self._on_end: Callable[[], None] | None = on_end
        self.on_caught_up: Callable[[], None] | None = None
        self.is_open = transport is not None
        self.is_paused = False
        self.byte_size = 0
        if transport is not None:
            transport.write(head)

    def write(self, data: Chunk) -> bool:
        """Send a piece now; empty ones are left out.

        Returns:
            Whether the client keeps up. After False, wait for `on_caught_up` before writing more: what is
            written in spite of it is kept in memory. A client that is gone keeps up with everything.
        """
        transport = self._transport
        if transport is None or not self.is_open or not data:
            return True
        self.byte_size += len(data)
        if self._is_chunked:
            transport.write(b"".join((b"%x\r\n" % len(data), data, b"\r\n")))
        else:
            transport.write(data)
        return not self.is_paused

    def end(self) -> None:
        """Say that the body is complete; the connection goes on to its next request.

        Also of a client that is gone: what is counted for its request is counted until then.
        """
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        self.is_open = False
        if self._is_chunked and self._transport is not None:
            self._transport.write(b"0\r\n\r\n")
        on_end()

    def abort(self) -> None:
        """Drop the connection, so that the client sees that the body is not complete."""
        if self.is_open and self._transport is not None:
            self._transport.abort()

    # What the connection calls.

    def pause(self) -> None:
        """The client reads slowly."""
        self.is_paused = True

    def resume(self) -> None:
        """The client has caught up."""
        self.is_paused = False
        if self.is_open and self.on_caught_up is not None:
            self.on_caught_up()

    def lose(self) -> None:
        """The client is gone: it keeps up with everything."""
        self.is_open = False
        self._transport = None
        self.is_paused = False
        if self._on_end is not None and self.on_caught_up is not None:
            self.on_caught_up()
