"""An HTTP request as the routes see it, and the writing of responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tritonpy.errors import ErrorCode, TritonError, Unavailable
from tritonpy.frontends.http.infer import Body

Chunk = bytes | bytearray | memoryview

RETRY_AFTER = b"Retry-After: 1\r\n"

JSON = b"application/json"
BINARY = b"application/octet-stream"
TEXT = b"text/plain"

STATUS = {
    ErrorCode.UNKNOWN: 400,
    ErrorCode.INTERNAL: 500,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.INVALID_ARG: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.ALREADY_EXISTS: 400,
    ErrorCode.CANCELLED: 400,
}
"""HTTP's status codes for Triton's error codes."""

_REASON = {
    100: b"Continue",
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}
_STATUS_LINE = {code: b"HTTP/1.1 %d %b\r\n" % (code, reason) for code, reason in _REASON.items()}


@dataclass(slots=True)
class HttpRequest:
    """One parsed request.

    Attributes:
        method: such as `GET`.
        path: as it came, not URL-decoded, without the query string.
        headers: by lower-case name; of a repeated header the first.
        body: the received bytes, not copied again.
        keep_alive: whether the connection stays open afterwards.
        is_http_1_0: the client speaks the older version, which knows no chunks.
        forwarded: the headers that become parameters of an inference, as they were written; None when there
            are none.
        begun_ns: when its first bytes came, if the last did not come with them.
        held: the bytes of its body that are counted, until it is answered.
    """

    method: bytes
    path: str
    headers: dict[bytes, bytes]
    body: Body
    keep_alive: bool
    is_http_1_0: bool = False
    forwarded: list[tuple[bytes, bytes]] | None = None
    begun_ns: int = 0
    held: int = 0


def response_head(
    status: int, content_type: bytes, length: int, keep_alive: bool, extra: Sequence[bytes] = ()
) -> bytes:
    """The status line and headers of a response, up to and including the empty line."""
    head = [_STATUS_LINE[status], b"Content-Type: %b\r\nContent-Length: %d\r\n" % (content_type, length)]
    head += extra
    if not keep_alive:
        head.append(b"Connection: close\r\n")
    head.append(b"\r\n")
    return b"".join(head)


def stream_head(
    status: int, content_type: bytes, is_chunked: bool, keep_alive: bool, extra: Sequence[bytes] = ()
) -> bytes:
    """The status line and headers of a response whose length is not known yet."""
    head = [_STATUS_LINE[status], b"Content-Type: %b\r\n" % content_type]
    if is_chunked:
        head.append(b"Transfer-Encoding: chunked\r\n")
    head += extra
    if not keep_alive:
        head.append(b"Connection: close\r\n")
    head.append(b"\r\n")
    return b"".join(head)


def error_body(text: str) -> bytes:
    """The JSON of an error."""
    try:
        return orjson.dumps({"error": text})
    except TypeError:  # what a model says may not be valid text
        return orjson.dumps({"error": text.encode("utf-8", "replace").decode()})


def json_bytes(document: Any) -> bytes:  # Any: JSON
    """A document as JSON, also with words of a model in it that are not valid text."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document).encode()


def json_response(document: Any, keep_alive: bool, status: int = 200) -> bytes:  # Any: JSON
    """A whole response; None gives one without a body."""
    body = b"" if document is None else json_bytes(document)
    return response_head(status, JSON, len(body), keep_alive) + body


def error_response(error: TritonError, keep_alive: bool) -> bytes:
    """A whole error response."""
    body = error_body(error.message)
    return response_head(STATUS[error.code], JSON, len(body), keep_alive) + body


def refusal(status: int, text: str, keep_alive: bool, extra: Sequence[bytes] = ()) -> bytes:
    """A whole error response of the protocol itself, such as 404 or 405."""
    body = error_body(text)
    return response_head(status, JSON, len(body), keep_alive, extra) + body


class Refused(Exception):
    """A request is answered before it has been read, and its connection closed.

    Attributes:
        response: the whole answer.
    """

    def __init__(self, response: bytes) -> None:
        super().__init__(response)
        self.response = response


def refusal_of(error: TritonError) -> bytes:
    """A whole error response after which the connection is closed."""
    retry = (RETRY_AFTER,) if isinstance(error, Unavailable) else ()
    return refusal(STATUS[error.code], error.message, False, retry)


def in_http_1_0(response: bytes, keep_alive: bool) -> bytes:
    """A response, or the head of one, in the words of the older version."""
    head, _, rest = response.partition(b"\r\n")
    stays = b"Connection: keep-alive\r\n" if keep_alive else b""
    return b"HTTP/1.0" + head[8:] + b"\r\n" + stays + rest
