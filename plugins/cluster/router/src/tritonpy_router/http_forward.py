"""HTTP requests on their way to a replica, and the answers on their way back: bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from tritonpy.errors import TritonError, Unavailable
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import (
    RETRY_AFTER,
    STATUS,
    Chunk,
    HttpRequest,
    error_response,
    refusal,
)
from tritonpy.frontends.http.connection.stream import ResponseStream

from tritonpy_router.http_client import Header, HttpUpstream
from tritonpy_router.replica import Replica
from tritonpy_router.request_spans import RequestSpans
from tritonpy_router.scan import Asked
from tritonpy_router.tracing import TRACE_HEADERS
from tritonpy_router.traffic import Traffic

_OF_THE_CONNECTION = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-forwarded-for",
    )
)
"""Headers that are each connection's own."""
_OF_TRACED = _OF_THE_CONNECTION | TRACE_HEADERS
_STATUS = "http.response.status_code"
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_GONE = refusal(503, "the client is gone", False)
"""What the access log is shown where nobody can be answered."""
_NONE: tuple[Replica, ...] = ()


class HttpForward:
    """One request; on the loop only. Satisfies `dispatcher.Routed` and `http_client.Exchange`.

    Args:
        traffic: gives it a replica and a connection.
        request: came from a client.
        connection: of the client.
        asked: what the request says.

    Attributes:
        spans: notes what happens; None for a request that is not traced.
    """

    __slots__ = (
        "_asked",
        "_begun_s",
        "_connection",
        "_head",
        "_is_over",
        "_is_well",
        "_parts",
        "_replica",
        "_request",
        "_stream",
        "_task",
        "_traffic",
        "_tried",
        "_upstream",
        "spans",
    )

    def __init__(
        self, traffic: Traffic, request: HttpRequest, connection: HttpConnection, asked: Asked
    ) -> None:
        self._traffic = traffic
        self._request = request
        self._connection = connection
        self._asked = asked
        self._tried: tuple[Replica, ...] = _NONE
        self._replica: Replica | None = None
        self._upstream: HttpUpstream | None = None
        self._task: asyncio.Task[None] | None = None
        self._stream: ResponseStream | None = None
        self._head = b""
        self._parts: Chunk = b""
        self._is_over = self._is_well = False
        self._begun_s = 0.0
        self.spans: RequestSpans | None = None

    def begin(self) -> None:
        """Send it to a replica that has its model."""
        self._begun_s = self._traffic.now_s()
        self._connection.watch(self._on_client_lost)
        if self.spans is not None:
            self.spans.waits(self, self._asked)
        self._traffic.dispatcher.take(self._asked, self)

    def begin_at(self, replica: Replica) -> None:
        """Send it to this replica."""
        self._begun_s = self._traffic.now_s()
        self._connection.watch(self._on_client_lost)
        self._traffic.dispatcher.take_any(replica)
        self.go(replica)

    # dispatcher.Routed

    def go(self, replica: Replica) -> None:
        """Send it there."""
        self._replica = replica
        if self.spans is not None:
            self.spans.picked(self, replica)
            self.spans.tries(self, replica, replica.place.http_port)
        pool = self._traffic.pools(replica).http
        upstream = pool.take()
        if upstream is not None:
            self._send(upstream)
        else:
            self._task = asyncio.get_running_loop().create_task(self._connect(replica))

    def no_replica(self, error: TritonError) -> None:
        """No replica takes it."""
        if self.spans is not None:
            self.spans.picked(self, None, error.message)
        self._answer_error(error)

    # http_client.Exchange

    def on_head(self, status: int, headers: list[Header], length: int | None) -> None:
        """The replica begins to answer."""
        if self.spans is not None:
            self._note_head(self.spans, status)
        self._is_well = status == HTTPStatus.OK
        kept = [
            b"%b: %b\r\n" % (name, value) for name, value in headers if name.lower() not in _OF_THE_CONNECTION
        ]
        if length is None and status == HTTPStatus.OK:
            self._begin_stream(kept)
            return
        if length is not None:
            kept.append(b"Content-Length: %d\r\n" % length)
        self._head = _STATUS_LINES.get(status, b"HTTP/1.1 %d \r\n" % status) + b"".join(kept)

    def on_body(self, data: Chunk) -> None:
        """A piece of the answer."""
        stream = self._stream
        if stream is None:
            self._parts = data if not self._parts else bytes(self._parts) + bytes(data)
        elif not stream.write(data) and self._upstream is not None:
            self._upstream.pause()

    def on_end(self) -> None:
        """The answer is complete."""
        if self._is_over:
            return
        self._finish(is_answered=True)
        if self._stream is not None:
            self._stream.end()
            self._end_spans()
            return
        connection = self._connection
        closing = b"\r\n" if connection.keep_alive else b"Connection: close\r\n\r\n"
        body = self._parts
        length = b"" if b"Content-Length: " in self._head else b"Content-Length: %d\r\n" % len(body)
        connection.write_parts(self._head + length + closing, (body,), len(body))
        self._end_spans()

    def on_lost(self, error: str) -> None:
        """The connection to the replica is gone before the answer was complete."""
        replica = self._replica
        if self._is_over or replica is None:
            return
        self._traffic.view.failed(replica)
        if self.spans is not None:
            self.spans.attempt_ends(self, error)
        if self._stream is not None:
            self._finish()
            self._stream.abort()
            self._stream.end()
            if self.spans is not None:
                error = f"replica '{replica.name}' was lost before its answer was complete ({error})"
                self.spans.outcome(error, (_STATUS, HTTPStatus.OK.value))
                self._end_spans()
        elif self._traffic.may_retry(self._asked, replica, len(self._tried)):
            self._retry(replica)
        else:
            self._traffic.metrics.lost(replica)
            self._finish()
            self._answer_error(
                Unavailable(
                    f"replica '{replica.name}' was lost before it answered ({error}): whether it has "
                    f"executed the request is not known"
                )
            )

    # Inside.

    async def _connect(self, replica: Replica) -> None:
        try:
            upstream = await self._traffic.pools(replica).http.connect()
        except (OSError, TimeoutError) as exc:
            self._task = None
            self._not_connected(replica, exc)
            return
        self._task = None
        if self._is_over:
            upstream.abort()
        elif upstream.is_open:
            self._send(upstream)
        else:
            self._not_connected(replica, ConnectionResetError("it closed the connection at once"))

    def _not_connected(self, replica: Replica, exc: Exception) -> None:
        """Nothing was sent, so another replica may have it."""
        self._traffic.view.failed(replica)
        if not self._is_over:
            self._traffic.log_unreachable(replica, exc)
            if self.spans is not None:
                self.spans.attempt_ends(self, f"it cannot be reached: {exc or type(exc).__name__}")
            self._retry(replica)

    def _retry(self, replica: Replica) -> None:
        self._tried = (*self._tried, replica)
        self._replica = self._upstream = None
        self._head = self._parts = b""
        traffic = self._traffic
        traffic.metrics.retried(replica)
        traffic.dispatcher.release(replica, self)
        if self._asked.model:
            if self.spans is not None:
                self.spans.waits(self, self._asked)
            traffic.dispatcher.take(self._asked, self, self._tried)
            return
        try:
            other = traffic.view.any_ready(self._tried)
        except TritonError as exc:
            self._answer_error(exc)
            return
        traffic.dispatcher.take_any(other)
        self.go(other)

    def _send(self, upstream: HttpUpstream) -> None:
        self._upstream = upstream
        self._traffic.budget.sent()
        request, replica = self._request, self._replica
        assert replica is not None  # it was chosen
        body = request.body
        spans = self.spans
        left_out = _OF_THE_CONNECTION if spans is None else _OF_TRACED
        lines = [
            b"%b %b HTTP/1.1\r\nHost: %b\r\n"
            % (request.method, request.path.encode("latin-1"), self._traffic.pools(replica).host)
        ]
        lines += [
            b"%b: %b\r\n" % (name, value) for name, value in request.headers.items() if name not in left_out
        ]
        if spans is not None:
            lines += [b"%b: %b\r\n" % header for header in spans.headers(self)]
            spans.sent(self)
        before = request.headers.get(b"x-forwarded-for")
        peer = self._traffic.peer(self._connection)
        lines.append(b"X-Forwarded-For: %b\r\n" % (peer if before is None else before + b", " + peer))
        if body or request.method == b"POST":
            lines.append(b"Content-Length: %d\r\n" % len(body))
        lines.append(b"\r\n")
        upstream.send(b"".join(lines), body, self)

    def _begin_stream(self, headers: Sequence[bytes]) -> None:
        content_type, extra = b"application/octet-stream", []
        for line in headers:
            name, _, value = line.partition(b": ")
            if name.lower() == b"content-type":
                content_type = value.rstrip()
            else:
                extra.append(line)
        stream = self._stream = self._connection.start_stream(200, content_type, extra)
        stream.on_caught_up = self._on_caught_up

    def _on_caught_up(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    def _on_client_lost(self) -> None:
        """Nobody wants the answer: the replica is told so by the end of its connection."""
        if self._is_over:
            return
        traffic, replica = self._traffic, self._replica
        self._is_over = True
        self._end_for_nobody()
        if self.spans is not None:
            self.spans.client_left()
            self._end_spans()
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        if replica is not None:
            traffic.dispatcher.release(replica, self)
        else:
            traffic.dispatcher.withdraw(self)

    def _end_for_nobody(self) -> None:
        """Say that the request is over: its bytes are counted until then."""
        if self._stream is not None:
            self._stream.end()
        else:
            self._connection.write(_GONE)

    def _finish(self, is_answered: bool = False) -> None:
        self._is_over = True
        replica, self._upstream = self._replica, None
        if replica is not None:
            if is_answered:
                replica.ejection.answered()
                self._traffic.metrics.answered("http", replica, self._traffic.now_s() - self._begun_s)
            is_timed = is_answered and self._is_well and self._request.method == b"POST"
            self._traffic.dispatcher.release(replica, self, is_timed)

    def _answer_error(self, error: TritonError) -> None:
        self._is_over = True
        keep_alive = self._connection.keep_alive
        self._traffic.metrics.refused("http", error)
        if isinstance(error, Unavailable):
            response = refusal(STATUS[error.code], error.message, keep_alive, (RETRY_AFTER,))
        else:
            response = error_response(error, keep_alive)
        self._connection.write(response)
        if self.spans is not None:
            self.spans.outcome(error.message, (_STATUS, STATUS[error.code]))
            self._end_spans()

    def _note_head(self, spans: RequestSpans, status: int) -> None:
        spans.answers(self)
        assert self._replica is not None  # it answers
        error = f"replica '{self._replica.name}' has answered {status}" if status >= 400 else None
        spans.outcome(error, (_STATUS, status))

    def _end_spans(self) -> None:
        spans, self.spans = self.spans, None
        if spans is not None:
            spans.end()
