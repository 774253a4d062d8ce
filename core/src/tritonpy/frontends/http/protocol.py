"""One HTTP/1.1 connection: bytes in, requests out, responses back in order.

Small requests pass through httptools. The body of a larger one is received straight into a buffer of its own
size, which the request's tensors then point into: no byte of it is copied in Python. After such a body the
parser is replaced by a fresh one, since the old one still waits for it.

One request of a connection runs at a time; the next ones wait as bytes in the kernel, because the socket is
not read meanwhile. That is also the back-pressure towards the client: nothing is read while its last answer
is still being written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import httptools
import numpy as np

from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.frontends.admission import Admission
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.errors import STATUS
from tritonpy.frontends.http.message import Chunk, HttpRequest, refusal, stream_head
from tritonpy.frontends.http.stream import ResponseStream

_LARGE_BODY = 16 * 1024
_MOST_HEADER_BYTES = 64 * 1024
_JOIN_BELOW = 64 * 1024
_DISCARD_S = 2.0

INFER_HEADER_LENGTH = b"inference-header-content-length"


class Handler(Protocol):
    """Answers requests; called on the loop."""

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer through `connection.write` or `connection.write_parts`, now or later, exactly once."""


class HttpConnection(asyncio.BufferedProtocol):
    """A client's connection; on the loop only.

    Args:
        handler: answers requests.
        admission: the bytes of requests that are held, of all connections.
        json_limit: the largest body that is not binary.
        scratch: where small reads land; shared by all connections when the loop copies it out at once.
        on_open, on_close: keep the server's list of connections.
        forwarding: which headers are kept as they were written; None for none.

    Attributes:
        epoch: the sweeper's tick when something last arrived.
    """

    def __init__(
        self,
        handler: Handler,
        admission: Admission,
        json_limit: int,
        scratch: memoryview,
        on_open: Callable[[HttpConnection], None],
        on_close: Callable[[HttpConnection], None],
        forwarding: HeaderForwarding | None = None,
    ) -> None:
        self._handler = handler
        self._admission = admission
        self._json_limit = json_limit
        self._scratch = scratch
        self._on_open = on_open
        self._on_close = on_close
        self._forwarding = forwarding
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[HttpRequest, int]] = deque()
        self._current: HttpRequest | None = None
        self._current_held = 0
        self._is_running = False
        self._refusal: bytes | None = None
        self._on_lost: Callable[[], None] | None = None
        self._stream: ResponseStream | None = None
        self._is_draining = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_dead = False
        self.epoch = 0
        self._start_message()

    # What routes and the server call.

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Have `on_lost` called if the client goes away before the current request is answered."""
        self._on_lost = on_lost

    def write(self, response: bytes) -> None:
        """Answer the current request with these bytes."""
        if self._transport is not None:
            self._transport.write(response)
        self._finish()

    def write_parts(self, head: bytes, parts: list[Chunk], size: int) -> None:
        """Answer the current request; large parts leave from where they are."""
        if self._transport is not None:
            if size <= _JOIN_BELOW:
                self._transport.write(b"".join([head, *parts]))
            else:
                self._transport.writelines([head, *parts])
        self._finish()

    def start_stream(self, status: int, content_type: bytes, extra: Sequence[bytes] = ()) -> ResponseStream:
        """Answer the current request with a body that is written piece by piece.

        `watch` says when the client goes away before the stream has ended.
        """
        is_chunked = self._current is not None and not self._current.is_http_1_0
        head = stream_head(status, content_type, is_chunked, self.keep_alive, extra)
        if self._transport is not None:
            self._transport.write(head)
        self._stream = stream = ResponseStream(self._transport, is_chunked, self._finish)
        if self._is_write_paused:
            stream.pause()
        return stream

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open after the current answer."""
        return self._current is not None and self._current.keep_alive and not self._is_draining

    @property
    def is_mid_message(self) -> bool:
        """Whether a request has begun to arrive but is not complete."""
        return self._has_begun and not self._is_read_paused

    def drain(self) -> None:
        """Close after the current answer, or now when there is none."""
        self._is_draining = True
        if self._current is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def time_out(self) -> None:
        """The client stopped in the middle of a request."""
        self._refuse(refusal(408, "the request did not arrive in time", False))

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        # Answers leave at once instead of at the end of the loop's turn: there is one to a connection, so
        # nothing is gained by waiting, and the client has it while we still count.
        self._transport.set_write_buffer_limits(high=0)
        self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._transport = None
        self._is_dead = True
        self._on_close(self)
        self._release_body()
        self._admission.held -= sum(held for _, held in self._waiting)
        self._waiting.clear()
        if self._stream is not None:
            self._stream.lose()
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def eof_received(self) -> bool:
        """The client has hung up: closes the connection, which cancels the current request."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of a large body, or the scratch buffer."""
        if self._body_view is not None:
            return self._body_view[self._body_filled :]
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self.epoch = -1
        if self._body_view is not None:
            self._body_filled += nbytes
            if self._body_filled == len(self._body_view):
                self._parser = httptools.HttpRequestParser(self)
                self._complete(self._body_view)
            return
        if self._is_dead:
            return
        self._feed(self._scratch[:nbytes])

    def _feed(self, data: memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # An offer a server may ignore. The parser is done with the connection, so a fresh one goes on.
            self._parser = httptools.HttpRequestParser(self)
            self._go_on_after(bytes(data[offer.args[0] :]))
        except (httptools.HttpParserError, httptools.HttpParserCallbackError) as exc:
            cause = exc.__context__
            if isinstance(cause, TritonError):
                retry = [b"Retry-After: 1\r\n"] if isinstance(cause, Unavailable) else []
                self._refuse(refusal(STATUS[cause.code], cause.message, False, retry))
            else:
                self._refuse(refusal(400, "malformed HTTP request", False))

    def _go_on_after(self, rest: bytes) -> None:
        view = self._body_view
        if view is not None:
            taken = min(len(rest), len(view) - self._body_filled)
            view[self._body_filled : self._body_filled + taken] = rest[:taken]
            self._body_filled += taken
            rest = rest[taken:]
            if self._body_filled == len(view):
                self._complete(view)
        if rest and not self._is_dead:
            self._feed(memoryview(rest))

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_write_paused = True
        if self._stream is not None:
            self._stream.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_write_paused = False
        if self._stream is not None:
            self._stream.resume()
        self._next()

    # httptools callbacks

    def _start_message(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._forwarded: list[tuple[bytes, bytes]] | None = None
        self._header_bytes = 0
        self._parts: list[bytes] = []
        self._parts_size = 0
        self._body_view: memoryview | None = None
        self._body_filled = 0
        self._held = 0
        self._has_begun = False
        self._keep_alive = True
        self._is_http_1_0 = False
        self._method = b""

    def on_message_begin(self) -> None:
        """A request starts."""
        self._has_begun = True

    def on_url(self, url: bytes) -> None:
        """Part of the request line's target."""
        self._url += url
        self._header_bytes += len(url)
        if self._header_bytes > _MOST_HEADER_BYTES:
            self._refuse_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.lower()] = value
        if self._forwarding is not None and self._forwarding.finds(name):
            if self._forwarded is None:
                self._forwarded = []
            self._forwarded.append((name, value))
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MOST_HEADER_BYTES:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        """All headers are here: decide how, and whether, the body is received."""
        headers = self._headers
        self._method = self._parser.get_method()
        self._keep_alive = self._parser.should_keep_alive()
        if not self._keep_alive or b"connection" in headers:
            self._is_http_1_0 = self._parser.get_http_version() == "1.0"
            self._keep_alive = self._keep_alive and not self._is_http_1_0
        length = headers.get(b"content-length")
        size = int(length) if length is not None else 0
        if size:
            self._hold(size)
        expects = headers.get(b"expect", b"").lower() == b"100-continue"
        if expects and self._current is None and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The parser stops at an offered upgrade, which is not taken up: then the body is read without it.
        if size > _LARGE_BODY or (size and b"upgrade" in headers):
            self._body_view = np.empty(size, np.uint8).data

    def on_body(self, body: bytes) -> None:
        """Part of a body that came with its headers, is small, or is chunked."""
        if self._body_view is not None:
            end = self._body_filled + len(body)
            self._body_view[self._body_filled : end] = body
            self._body_filled = end
            return
        self._parts.append(body)
        self._parts_size += len(body)
        if self._parts_size > self._held:
            self._hold(self._parts_size)

    def on_message_complete(self) -> None:
        """The request is complete, and was small, chunked, or came in one piece with its headers."""
        if self._body_view is not None:
            if self._body_filled == len(self._body_view):
                self._complete(self._body_view)
        else:
            parts = self._parts
            self._complete(parts[0] if len(parts) == 1 else b"".join(parts))

    # Inside

    def _refuse_headers(self) -> None:
        raise InvalidArg(f"the request's headers exceed {_MOST_HEADER_BYTES} bytes")

    def _hold(self, size: int) -> None:
        admission = self._admission
        if size > self._json_limit and INFER_HEADER_LENGTH not in self._headers:
            raise InvalidArg(
                f"request of {size} bytes exceeds the maximum allowed input size of {self._json_limit} "
                f"bytes. Use --http-max-input-size to increase the limit."
            )
        if not admission.admits(size - self._held):
            raise Unavailable(
                f"request of {size} bytes refused: {admission.held} bytes of requests are held and "
                f"--max-inflight-bytes is {admission.limit}"
            )
        admission.held += size - self._held
        self._held = size

    def _release_body(self) -> None:
        self._admission.held -= self._held
        self._held = 0

    def _complete(self, body: bytes | memoryview) -> None:
        url = self._url
        query = url.find(b"?")
        path = (url if query < 0 else url[:query]).decode("latin-1")
        request = HttpRequest(
            self._method,
            path,
            self._headers,
            body,
            self._keep_alive,
            self._is_http_1_0,
            self._forwarded,
        )
        held = self._held
        self._start_message()
        if self._current is None and not self._waiting and not self._is_write_paused:
            self._run(request, held)
        else:
            self._waiting.append((request, held))
            self._pause_reading()

    def _run(self, request: HttpRequest, held: int) -> None:
        self._current = request
        self._current_held = held
        self._handler(request, self)

    def _finish(self) -> None:
        """The current request is answered."""
        current = self._current
        if current is None:
            return
        self._on_lost = None
        self._stream = None
        self._admission.held -= self._current_held
        self._current_held = 0
        close = not current.keep_alive or self._is_draining
        self._current = None
        if close and self._transport is not None:
            self._transport.close()
        elif self._is_read_paused and not self._is_running:
            self._next()

    def _next(self) -> None:
        """Run what was pipelined, then read on."""
        self._is_running = True  # an answer given at once comes back through _finish: loop, do not recurse
        while self._waiting and self._current is None and not self._is_write_paused and self._transport:
            self._run(*self._waiting.popleft())
        self._is_running = False
        if self._refusal is not None and self._current is None and not self._waiting:
            refusal, self._refusal = self._refusal, None
            self._refuse(refusal)
            return
        if (
            self._is_read_paused
            and not self._waiting
            and self._current is None
            and self._transport is not None
        ):
            self._is_read_paused = False
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and self._transport is not None:
            self._is_read_paused = True
            self._transport.pause_reading()

    def _refuse(self, response: bytes) -> None:
        """Answer what cannot be parsed, after whatever is being answered, and close."""
        self._release_body()
        self._is_dead = True
        if self._current is not None or self._waiting:
            self._refusal = response
            self._pause_reading()
        elif self._transport is not None:
            self._body_view = None
            self._transport.write(response)
            # Closing while the client still sends would reset the connection, and the answer with it.
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(_DISCARD_S, self._transport.close)
