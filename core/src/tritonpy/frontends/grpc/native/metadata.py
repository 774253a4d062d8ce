"""The headers of a gRPC call: what it asks for and in which form, and its metadata."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from tritonpy.frontends.grpc.native.engine import Headers
from tritonpy.frontends.grpc.status import Status

SOFT_LIMIT = 16 * 1024
"""Bytes of headers beyond which a call is refused; each counts with 32 more, as in RFC 9113."""

RESPONSE_HEADERS: Headers = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
)
GZIP_HEADERS: Headers = (*RESPONSE_HEADERS, (b"grpc-encoding", b"gzip"))
"""The headers of a call whose messages may be compressed."""
OK_TRAILERS: Headers = ((b"grpc-status", b"0"),)

_ENTRY_OVERHEAD = 32
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_NO_METADATA = frozenset((b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"))
_CODINGS = (b"", b"identity", b"gzip", b"deflate")
_NOT_PLAIN = re.compile(rb"[^ -$&-~]")
_MOST_REMEMBERED = 256
_LARGEST_REMEMBERED = 2048
_MOST_SHOWN = 40  # characters of a wrong header


class RequestHead:
    """The contents of the headers of a call.

    Attributes:
        headers: as they came.
        path: the full name of the call.
        http_status: of the answer to what is no gRPC call; "" for one that is.
        refusal: status and text of a call that can go no further.
        timeout_s: how long the client waits; None for as long as it takes.
        coding: of compressed messages; b"" or b"identity" for none.
        accepts_gzip: responses may be compressed so.
        byte_size: of all headers; each counts with 32 more.
    """

    __slots__ = (
        "_metadata",
        "accepts_gzip",
        "byte_size",
        "coding",
        "headers",
        "http_status",
        "path",
        "refusal",
        "timeout_s",
    )

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self._metadata: tuple[tuple[str, str | bytes], ...] | None = None
        self.path = ""
        self.http_status = b""
        self.refusal: tuple[Status, str] | None = None
        self.timeout_s: float | None = None
        self.coding = b""
        self.accepts_gzip = False
        method = content_type = b""
        size = 0
        for name, value in headers:
            size += len(name) + len(value) + _ENTRY_OVERHEAD
            if name == b":path":
                self.path = value.decode("latin-1")
            elif name == b":method":
                method = value
            elif name == b"content-type":
                content_type = value
            elif name == b"grpc-timeout":
                self._read_timeout(value)
            elif name == b"grpc-encoding":
                self.coding = value
            elif name == b"grpc-accept-encoding":
                self.accepts_gzip = b"gzip" in [coding.strip() for coding in value.split(b",")]
        self.byte_size = size
        if method != b"POST":
            self.http_status = b"405"
        elif content_type and not _is_grpc(content_type):  # without any Triton and grpcio answer, too
            self.http_status = b"415"
        elif size > SOFT_LIMIT:
            self.refusal = (
                Status.RESOURCE_EXHAUSTED,
                f"received metadata size exceeds hard limit ({size} vs. {SOFT_LIMIT})",
            )
        elif self.coding not in _CODINGS:
            text = f"Compression algorithm '{_shown(self.coding)}' is disabled."
            self.refusal = (Status.UNIMPLEMENTED, text)

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata that the client sent: text, and bytes under keys that end in `-bin`."""
        if self._metadata is None:
            self._metadata = tuple(
                entry
                for name, value in self.headers
                if name not in _NO_METADATA and not name.startswith(b":")
                for entry in _entries(name, value)
            )
        return self._metadata

    def _read_timeout(self, value: bytes) -> None:
        found = _TIMEOUT.fullmatch(value)
        if found is None:
            self.refusal = (Status.INTERNAL, f"Invalid grpc-timeout: '{_shown(value)}'")
        else:
            self.timeout_s = int(found[1]) * _UNIT_S[found[2]]


class RequestHeads:
    """Reads headers; a client that sends the same ones again is understood by their bytes."""

    def __init__(self) -> None:
        self._remembered: dict[Headers, RequestHead] = {}

    def read(self, headers: Headers) -> RequestHead:
        """The contents of the headers of a call."""
        head = self._remembered.get(headers)
        if head is None:
            head = RequestHead(headers)
            # What is left of a deadline is different for each call.
            if head.timeout_s is None and head.byte_size <= _LARGEST_REMEMBERED:
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                self._remembered[headers] = head
        return head


def status_headers(status: int, text: str) -> list[tuple[bytes, bytes]]:
    """The trailers that end a call."""
    headers = [(b"grpc-status", b"%d" % status)]
    if text:
        headers.append((b"grpc-message", percent_encoded(text)))
    return headers


def percent_encoded(text: str) -> bytes:
    """A text as a header: UTF-8, and %XX for all that is not printable ASCII, and for % itself."""
    return _NOT_PLAIN.sub(lambda found: b"%%%02X" % found[0][0], text.encode("utf-8", "replace"))


def _shown(value: bytes) -> str:
    """A header's value for an answer, which is to be no longer than what clients take."""
    text = value.decode("latin-1")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _is_grpc(content_type: bytes) -> bool:
    """`application/grpc`, alone or with `+` or `;` and more behind it."""
    kind = content_type.lower()
    return kind.startswith(b"application/grpc") and kind[16:17] in (b"", b"+", b";")


def _entries(name: bytes, value: bytes) -> list[tuple[str, str | bytes]]:
    key = name.decode("latin-1")
    if not name.endswith(b"-bin"):
        return [(key, value.decode("latin-1"))]
    return [(key, _decoded(part.strip())) for part in value.split(b",")]


def _decoded(value: bytes) -> bytes:
    """Base64, padded or not; what is none stays as it came."""
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return value
