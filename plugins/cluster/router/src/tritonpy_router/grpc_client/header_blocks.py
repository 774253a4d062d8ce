"""Headers as replicas are sent them and send them: blocks without a table, of which equal ones mean the same.

Requests are written without the dynamic table of HPACK, and replicas are told to keep none. A block
then depends on nothing that came before it: one that was written for a request is sent again as it is, and
one that was read is known by its bytes.
"""

from __future__ import annotations

import re

from hpack import Decoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from tritonpy_router.grpc_client.call import Headers

_KNOWN = {
    (b":method", b"POST"): b"\x83",
    (b":scheme", b"http"): b"\x86",
    (b":scheme", b"https"): b"\x87",
}
"""Pairs of the static table; each is one byte."""
_KNOWN_NAMES = {
    b":authority": b"\x01",
    b":path": b"\x04",
    b"authorization": b"\x0f\x08",
    b"content-type": b"\x0f\x10",
    b"user-agent": b"\x0f\x2b",
}
"""Names of the static table, each as the beginning of a header that goes into no table."""
_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\x00\r\n]*")
_OF_THE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
MOST_HEADER_BYTES = 256 * 1024
"""Headers of an answer, as they are sent and as they are read."""
_MOST_REMEMBERED = 256
_LARGEST_REMEMBERED = 1024


class Undecodable(Exception):
    """A block cannot be read; what comes behind it neither."""


class Malformed(Exception):
    """Headers that HTTP/2 does not allow."""


def encoded(headers: Headers) -> bytes:
    """The block of some headers."""
    parts = []
    for name, value in headers:
        known = _KNOWN.get((name, value))
        if known is not None:
            parts.append(known)
            continue
        known_name = _KNOWN_NAMES.get(name)
        parts.append(b"\x00" + _text(name) if known_name is None else known_name)
        parts.append(_text(value))
    return b"".join(parts)


def _text(value: bytes) -> bytes:
    size = len(value)
    if size < 127:
        return bytes((size,)) + value
    length = bytearray(b"\x7f")
    size -= 127
    while size >= 128:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes(length) + value


class BlockReader:
    """Reads the blocks of answers; those that come again are known."""

    __slots__ = ("_remembered",)

    def __init__(self) -> None:
        self._remembered: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """The headers of a block.

        Raises:
            Undecodable: it is none.
            Malformed: they are not allowed.
        """
        headers = self._remembered.get(block)
        if headers is None:
            headers = _decoded(block)
            if len(block) <= _LARGEST_REMEMBERED:
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                self._remembered[block] = headers
        return headers


def _decoded(block: bytes) -> Headers:
    decoder = Decoder(max_header_list_size=MOST_HEADER_BYTES)
    decoder.header_table_size = 0
    try:
        headers = tuple((bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True))
    except OversizedHeaderListError:  # costs its call alone: no other block needs what is in this one
        raise Malformed(f"more than {MOST_HEADER_BYTES} bytes of headers") from None
    except HPACKError as exc:
        raise Undecodable(f"{type(exc).__name__}: {exc}") from None
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in _OF_THE_CONNECTION:
            raise Malformed(f"header {name!r}")
    return headers
