"""Limits of requests, and the refusals of what exceeds them or is no request."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import httptools
import numpy as np

from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.connection.message import Refused, refusal, refusal_of
from tritonpy.frontends.http.infer import beyond

MOST_HEADER_BYTES = 64 * 1024
"""All of a request that is no body, trailers and chunk extensions included, but for `CHUNK_FRAMING`."""
CHUNK_FRAMING = 16
"""Bytes around each chunk beyond that: its size in hexadecimal and two ends of lines."""
MOST_CHUNKS = 65_536
"""Chunks of a body that are not empty; as many as in Triton."""
LARGE_BODY = 16 * 1024
"""A body that announces more gets a buffer of its own; of one that announces less all of it is reserved."""

_LONGEST_LINE = 1024
_REQUEST_LINE = re.compile(rb"(?:\r\n)*([A-Z]+) [!-~]+ HTTP/[0-9]\.[0-9]\r\n")
_METHODS = frozenset((b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"))

_log = logging.getLogger("tritonpy.http")

INFER_HEADER_LENGTH = b"inference-header-content-length"


def headers_too_large() -> Refused:
    """The refusal of headers that exceed the limit."""
    return Refused(refusal(431, f"the request's headers exceed {MOST_HEADER_BYTES} bytes", False))


def too_many_chunks() -> Refused:
    """The refusal of a body that comes in too many pieces."""
    return Refused(
        refusal(
            400,
            f"Chunked request body exceeds maximum of {MOST_CHUNKS} non-empty chunks. Send fewer or larger "
            "HTTP chunks.",
            False,
        )
    )


def check_size(headers: Mapping[bytes, bytes], byte_size: int, limit: int) -> None:
    """Refuse a body over `limit` unless most of it may be tensors, which travel as they are.

    Those follow a JSON header whose length is given. A length of 0 means one raw tensor, which counts like
    JSON; so does a body that is still to be decompressed, since it can only become larger.

    Raises:
        Refused: it is too large.
    """
    header_length = headers.get(INFER_HEADER_LENGTH, b"0").strip()
    # A length that is no number is refused when the body is looked at, and need not be read for that.
    is_binary = header_length.isdigit() and 0 < int(header_length[:20]) <= limit
    if is_binary and headers.get(b"content-encoding", b"identity").lower() == b"identity":
        return
    what = "request" if INFER_HEADER_LENGTH in headers else "request JSON"
    raise Refused(refusal_of(InvalidArg(f"{what} size of {byte_size} bytes {beyond(limit)}")))


def body_buffer(byte_size: int, most_held: int) -> memoryview:
    """A buffer for a body; its pages become memory as bytes arrive.

    Args:
        byte_size: of the body.
        most_held: the value of `--max-inflight-bytes`, for the words of the refusal.

    Raises:
        Refused: there is no such room on this machine.
    """
    try:
        return np.empty(byte_size, np.uint8).data
    except (MemoryError, ValueError, OverflowError):
        raise Refused(
            refusal_of(
                InvalidArg(
                    f"request of {byte_size} bytes cannot be received: there is no memory for it on this "
                    f"machine. --max-inflight-bytes, which bounds what all requests hold, is {most_held}"
                )
            )
        ) from None


def response_to(error: Exception, data: memoryview) -> bytes:
    """The answer to bytes that are no request, or to a request that is refused while it is read."""
    if isinstance(error, httptools.HttpParserCallbackError):
        cause = error.__context__
        if isinstance(cause, Refused):
            return cause.response
        _log.error("a request could not be read", exc_info=cause)
        return refusal(500, f"the request could not be read: {type(cause).__name__}: {cause}", False)
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        line = _REQUEST_LINE.match(bytes(data[:_LONGEST_LINE]))
        if line is not None and line[1] not in _METHODS:
            return refusal(405, "Method Not Allowed", False)
    return refusal(400, f"malformed HTTP request: {error}", False)
