"""The reader of one connection: requests from bytes.

Small requests pass through httptools. The body of a larger one is received straight into a buffer of its own
size, which the request's tensors then point into: no byte of it is copied in Python. After such a body the
parser is replaced by a fresh one, since the old one still waits for it.
"""

from __future__ import annotations

import sys
import time
from typing import Protocol

import httptools

from tritonpy.admission import Admission
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.connection.limits import (
    CHUNK_FRAMING,
    LARGE_BODY,
    MOST_CHUNKS,
    MOST_HEADER_BYTES,
    body_buffer,
    headers_too_large,
    response_to,
    too_many_chunks,
)
from tritonpy.frontends.http.connection.message import HttpRequest, Refused, refusal

_SLASH = ord("/")


class Receiver(Protocol):
    """Takes what a reader finds."""

    def on_request(self, request: HttpRequest) -> None:
        """A request is complete; the bytes that are counted of it are the receiver's to release."""

    def on_expectation(self, request: HttpRequest) -> None:
        """A client waits to be told to send the body of this request.

        Raises:
            Refused: it should not.
        """

    def on_refusal(self, response: bytes) -> None:
        """This is the only possible answer to what came; nothing more is read."""

    def on_large_body(self, request: HttpRequest, byte_size: int) -> None:
        """A body exceeds the limit, with `byte_size` bytes so far or as announced.

        Raises:
            Refused: it is not taken.
        """

    def on_lack_of_room(self) -> None:
        """No more should be read until there is room for it."""


class RequestReader:
    """Reads requests; on the loop only.

    Args:
        receiver: takes them.
        admission: counts the bytes that have arrived, over all frontends.
        json_limit: the receiver is asked about bodies that are larger.
        forwarding: which headers are kept as they were written; None for none.

    Attributes:
        announced: the size of the body of the request that is being read, as far as that is known.
        is_mid_message: it has begun to arrive.
        is_in_head: and its headers are not complete.
        is_awaited: its client waits to be told to send the body; the code that tells it unsets this.
        view: where a large body goes; None when what comes next is to be fed.
        filled: how much of it has been filled.
        number: of the request, to tell it from others of this connection.
    """

    __slots__ = (
        "_admission",
        "_body",
        "_chunks",
        "_fed",
        "_forwarding",
        "_head_bytes",
        "_header_sink",
        "_is_chunked",
        "_json_limit",
        "_parser",
        "_receiver",
        "_request",
        "_url",
        "announced",
        "filled",
        "is_awaited",
        "is_in_head",
        "is_mid_message",
        "number",
        "view",
    )

    def __init__(
        self,
        receiver: Receiver,
        admission: Admission,
        json_limit: int,
        forwarding: HeaderForwarding | None = None,
    ) -> None:
        self._receiver = receiver
        self._admission = admission
        self._json_limit = json_limit
        self._forwarding = forwarding
        self._parser = _parser_for(self)
        self.number = 0
        self._start_message()

    # What the connection calls.

    @property
    def held(self) -> int:
        """The bytes of the request that are counted."""
        return self._request.held

    @property
    def rest(self) -> memoryview:
        """The buffer for the rest of a large body."""
        assert self.view is not None  # looked at before
        return self.view[self.filled :]

    @property
    def received(self) -> int:
        """The bytes of the body that are here."""
        return len(self._body) if self.view is None else self.filled

    def body_arrived(self, byte_size: int) -> None:
        """`byte_size` bytes have been written to `rest`."""
        self._fill(self.filled + byte_size)
        if self.filled == self.announced and self.view is not None:
            self._parser = _parser_for(self)
            self._complete(self.view)

    def feed(self, data: memoryview) -> None:
        """Read what has arrived; the receiver is told of what is in it."""
        number = self.number
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._go_on_after(exc, data)
        if self.number == number:  # else it is unknown how much of it is this one's
            self._fed += len(data)
            self._check_framing()
        if self.is_mid_message and not self._request.begun_ns:
            self._request.begun_ns = time.monotonic_ns()

    def discard(self) -> None:
        """Forget the request that was being read."""
        held = self._request.held
        self._start_message()
        self._admission.release(held)

    def close(self) -> None:
        """Read no more, and break the reference cycle with the parser."""
        self.discard()
        del self._parser

    # What httptools calls.

    def _start_message(self) -> None:
        self.number += 1
        self._request = HttpRequest(b"", "", {}, b"", True)
        self._header_sink = self._request.headers
        self._url = b""
        self._head_bytes = 0
        self._fed: int = 0
        self._body: bytes | bytearray = b""
        self.view: memoryview | None = None
        self.filled = 0
        self._is_chunked = False
        self.announced = 0
        self.is_mid_message: bool = False
        self.is_in_head: bool = False
        self.is_awaited = False

    def on_message_begin(self) -> None:
        """A request starts."""
        self.is_mid_message = True
        self.is_in_head = True

    def on_url(self, url: bytes) -> None:
        """Part of the request line's target."""
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > MOST_HEADER_BYTES:
            raise headers_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer, which is dropped."""
        self._head_bytes = head_bytes = self._head_bytes + len(name) + len(value) + 4
        if head_bytes > MOST_HEADER_BYTES:
            raise headers_too_large()
        self._header_sink.setdefault(name.lower(), value)
        if self._forwarding is not None and self.is_in_head and self._forwarding.finds(name):
            request = self._request
            request.forwarded = [*(request.forwarded or ()), (name, value)]

    def on_headers_complete(self) -> None:
        """All headers are here: decide how, and whether, the body is received."""
        request, parser = self._request, self._parser
        headers = request.headers
        self.is_in_head = False
        url = self._url if self._url[0] == _SLASH else _origin_form(self._url)
        query = url.find(b"?")
        request.path = (url if query < 0 else url[:query]).decode("latin-1")
        request.method = parser.get_method()
        request.keep_alive = keep_alive = parser.should_keep_alive()
        # Asked only of clients that can be older ones: those say that they want to stay, or do not stay.
        if not keep_alive or b"connection" in headers:
            request.is_http_1_0 = parser.get_http_version() in ("1.0", "0.9")
        length = headers.get(b"content-length")
        if length is not None:
            self._announce(int(length))
        elif b"transfer-encoding" in headers:
            self._announce_chunks(headers[b"transfer-encoding"])
        # Any expectation: the client has said that it waits, and may do so without an end.
        if b"expect" in headers and self.announced and not request.is_http_1_0:
            self.is_awaited = True
            self._receiver.on_expectation(request)

    def on_chunk_header(self) -> None:
        """A chunk follows, or the end of all."""
        self._chunks += 1

    def on_body(self, body: bytes) -> None:
        """Part of a body that came with its headers, is small, or is chunked."""
        view = self.view
        if view is not None:
            end = self.filled + len(body)
            view[self.filled : end] = body
            self._fill(end)
            return
        if not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body
        if self._is_chunked:
            if self._chunks > MOST_CHUNKS:
                raise too_many_chunks()
            if len(self._body) > self._json_limit:
                self._receiver.on_large_body(self._request, len(self._body))
            self._fill(len(self._body))

    def on_message_complete(self) -> None:
        """The request is complete, and was small, chunked, or came in one piece with its headers."""
        if self.view is None:
            body = self._body
            self._complete(body if isinstance(body, bytes) else memoryview(body))
        elif self.filled == self.announced:
            self._complete(self.view)

    # Inside.

    def _announce(self, size: int) -> None:
        request = self._request
        if size > self._json_limit:
            self._receiver.on_large_body(request, size)
        self.announced = size
        # The parser stops at an offered upgrade, which is not taken up: then the body is read without it.
        if size > LARGE_BODY or (size and b"upgrade" in request.headers):
            self.view = body_buffer(size, self._admission.limit)
        request.held = size if size < LARGE_BODY else LARGE_BODY
        if not self._admission.hold(request.held):
            self._receiver.on_lack_of_room()

    def _announce_chunks(self, coding: bytes) -> None:
        if coding.lower() != b"chunked":
            text = f"Unsupported transfer encoding '{coding.decode('latin-1')}': expected 'chunked'"
            raise Refused(refusal(501, text, False))
        self._header_sink = {}  # for trailers
        self._is_chunked = True
        self._chunks = 0
        self.announced = sys.maxsize

    def _check_framing(self) -> None:
        """Refuse a message of which too much is no body.

        That is the head, blank lines before it, the lines around chunks with their extensions and leading
        zeros, and trailers. All of it passes through the parser, which calls nothing while a line is endless
        and copies what it has of a header with each piece.
        """
        framing = self._fed - self.received
        if framing > MOST_HEADER_BYTES and (
            not self._is_chunked or framing > MOST_HEADER_BYTES + self._chunks * CHUNK_FRAMING
        ):
            self._receiver.on_refusal(headers_too_large().response)

    def _fill(self, filled: int) -> None:
        self.filled = filled
        more = filled - self._request.held
        if more > 0:
            self._request.held = filled
            if not self._admission.hold(more) and filled < self.announced:
                self._receiver.on_lack_of_room()

    def _go_on_after(self, error: Exception, data: memoryview) -> None:
        while isinstance(error, httptools.HttpParserUpgrade):
            # An offer a server may ignore. The parser is done with the connection: a fresh one goes on.
            self._parser = _parser_for(self)
            data = self._body_after_offer(data[error.args[0] :])
            if not data:
                return
            try:
                self._parser.feed_data(data)
                return
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
                error = exc
        self._receiver.on_refusal(response_to(error, data))

    def _body_after_offer(self, data: memoryview) -> memoryview:
        """Take the body out of what follows an offered upgrade; return the rest."""
        view = self.view
        if view is None:
            return data
        taken = min(len(data), len(view) - self.filled)
        view[self.filled : self.filled + taken] = data[:taken]
        self._fill(self.filled + taken)
        if self.filled == len(view):
            self._complete(view)
        return data[taken:]

    def _complete(self, body: bytes | memoryview) -> None:
        request = self._request
        request.body = body
        self._start_message()
        self._receiver.on_request(request)


def _origin_form(url: bytes) -> bytes:
    """The path and query of a target that names its server, as clients of proxies write it."""
    scheme, mark, rest = url.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        return url
    path = rest.find(b"/")
    return b"/" if path < 0 else rest[path:]


def _parser_for(reader: RequestReader) -> httptools.HttpRequestParser:
    """A parser that takes a later minor version of HTTP/1, which is answered as 1.1."""
    parser = httptools.HttpRequestParser(reader)
    parser.set_dangerous_leniencies(lenient_version=True)
    return parser
