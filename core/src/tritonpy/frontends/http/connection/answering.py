"""The side of a connection that answers: one request at a time, as handlers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tritonpy.frontends.http.connection.access_log import Note
from tritonpy.frontends.http.connection.message import Chunk, HttpRequest, in_http_1_0, stream_head
from tritonpy.frontends.http.connection.stream import ResponseStream
from tritonpy.request_trace import RequestTrace

_JOIN_BELOW = 64 * 1024


class Handler(Protocol):
    """Answers requests; called on the loop."""

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer through `connection.write` or `connection.write_parts`, now or later, exactly once."""

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        """The answer to a request that is refused without a look at its body; None for others."""


class HttpConnection:
    """A client's connection, to which the answer of its current request is written; on the loop only.

    What is read, and which request comes next, is left to `protocol.HttpProtocol`.

    Attributes:
        request_id: of the current request, for the access log; set by who reads the body.
        trace: takes notes of the current request; see `follow`.
    """

    __slots__ = (
        "_current",
        "_is_draining",
        "_is_special",
        "_is_write_paused",
        "_note",
        "_on_lost",
        "_stream",
        "_transport",
        "request_id",
        "trace",
    )

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._is_draining = False
        self._is_write_paused = False
        self._current: HttpRequest | None = None
        self._on_lost: Callable[[], None] | None = None
        self._stream: ResponseStream | None = None
        self._is_special = False  # there is something to note, or the client is an older one
        self._note: Note | None = None
        self.request_id = ""
        self.trace: RequestTrace | None = None

    @property
    def current(self) -> HttpRequest | None:
        """The request that is answered now."""
        return self._current

    @property
    def keep_alive(self) -> bool:
        """True if the connection stays open after the current answer."""
        return self._current is not None and self._current.keep_alive and not self._is_draining

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Have `on_lost` called if the client goes away before its request is answered, now if it is gone."""
        if self._transport is None:
            on_lost()
        else:
            self._on_lost = on_lost

    def follow(self, trace: RequestTrace) -> None:
        """Note in a trace when the current request is answered; the code that starts a stream does so."""
        self.trace = trace
        self._is_special = True

    def write(self, response: bytes) -> None:
        """Answer the current request with these bytes."""
        current = self._current
        if current is None:
            return
        if self._is_special:
            response = self._specially(response, len(response))
        if self._transport is not None:
            self._transport.write(response)
        self._finish(current)

    def write_parts(self, head: bytes, parts: Sequence[Chunk], size: int) -> None:
        """Answer the current request; large parts leave from where they are."""
        current = self._current
        if current is None:
            return
        if self._is_special:
            head = self._specially(head, len(head) + size)
        if self._transport is not None:
            if size <= _JOIN_BELOW:
                self._transport.write(b"".join([head, *parts]))
            else:
                self._transport.writelines([head, *parts])
        self._finish(current)

    def start_stream(self, status: int, content_type: bytes, extra: Sequence[bytes] = ()) -> ResponseStream:
        """Answer the current request with a body that is written piece by piece.

        `watch` says when the client goes away before the stream has ended.
        """
        current = self._current
        is_chunked = current is not None and not current.is_http_1_0
        if current is not None and not is_chunked:
            current.keep_alive = False  # the end of the connection is that of the body
        head = stream_head(status, content_type, is_chunked, self.keep_alive, extra)
        if not is_chunked:
            head = in_http_1_0(head, False)
        self._stream = stream = ResponseStream(self._transport, head, is_chunked, self._end_stream)
        if self._is_write_paused:
            stream.pause()
        return stream

    def _finish(self, current: HttpRequest) -> None:
        """This request, the current one, is answered."""
        raise NotImplementedError

    def _specially(self, response: bytes, byte_size: int) -> bytes:
        """Log an answer of `byte_size` bytes, and write its head as clients of HTTP/1.0 know it."""
        if self.trace is not None and self._stream is None:
            self.trace.report_activity("HTTP_SEND_START")
        if self._note is not None:
            self._note.end(response, 0 if self._transport is None else byte_size, self.request_id)
            self._note = None
        if self._current is not None and self._current.is_http_1_0:
            return in_http_1_0(response, self.keep_alive)
        return response

    def _end_stream(self) -> None:
        stream = self._stream
        if self._is_special and stream is not None:
            self._specially(stream.head, len(stream.head) + stream.byte_size)
        if self._current is not None:
            self._finish(self._current)
