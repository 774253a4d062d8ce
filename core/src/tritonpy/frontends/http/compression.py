"""Compressed bodies of inference requests and responses: gzip, and deflate in both of its meanings."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable

from tritonpy.errors import InvalidArg, Unsupported
from tritonpy.frontends.http.connection.message import Chunk

CODINGS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""What is understood both ways, with what `zlib` calls it."""

ACCEPT_ENCODING = b"Accept-Encoding: gzip, deflate\r\n"
"""Goes with the refusal of any other coding."""

MOST_MEMBERS = 65_536
"""Pieces of gzip data that a body may be put together from; as many as chunks."""

_EITHER = 32 + zlib.MAX_WBITS  # as in Triton, the header of the data says which of the two it is
_RAW = -zlib.MAX_WBITS
_STEP = 256 * 1024
_SLICE = 16 * 1024
_HERE = 16 * 1024
_INFLATED_HERE = 64 * 1024


def content_coding(value: bytes) -> bytes | None:
    """How a body is compressed, from its Content-Encoding; None when it is not.

    Raises:
        Unsupported: in a way that is not understood.
    """
    if value == b"identity":
        return None
    if value not in CODINGS:
        raise Unsupported("Unsupported compression type")
    return value


def accepted_coding(value: bytes) -> bytes | None:
    """The coding that a client wants its answer in, from its Accept-Encoding; None for none.

    The greatest weight wins, of equal ones the first; `*` and what is unknown count for nothing.
    """
    best, best_weight = None, 0.0
    for item in value.split(b","):
        name, _, weight_text = item.partition(b";")
        name = name.strip()
        if name == b"identity" or name in CODINGS:
            weight = _weight(weight_text.strip())
            if weight > best_weight:
                best, best_weight = name, weight
    return best if best != b"identity" else None


def _weight(text: bytes) -> float:
    if not text:
        return 1.0
    name, _, number = text.partition(b"=")
    if name != b"q":
        return 0.0
    try:
        return float(number.partition(b";")[0])
    except ValueError:
        return 0.0


async def decompressed(body: bytes | memoryview, coding: bytes, limit: int) -> memoryview:
    """A body as it was; a large one is worked on by a thread.

    Raises:
        InvalidArg: it is corrupt, incomplete or becomes larger than `limit`, which is noticed before so much
            memory is taken.
    """
    if not body:
        raise InvalidArg("nothing to be decompressed")
    inflater = _Inflater(body, coding, limit)
    if len(body) > _HERE or not inflater.inflate(_INFLATED_HERE):
        await asyncio.to_thread(inflater.inflate, None)
    return memoryview(inflater.result)


class _Inflater:
    """Takes one body apart, step by step.

    It is fed in slices, since `zlib` copies what it has not used yet: of a whole body that would be done for
    each step and each member anew, and take longer than all the rest.

    Attributes:
        result: what has come out so far.
    """

    def __init__(self, body: bytes | memoryview, coding: bytes, limit: int) -> None:
        self.result = bytearray()
        self._coding = coding.decode()
        self._limit = limit
        self._body = memoryview(body)
        self._position = 0  # in the body, of what has been fed
        self._members = 1
        self._is_full = False  # the last step filled its room: more may be waiting inside of `zlib`
        # RFC 9110 says that deflate has a header of two bytes; some clients have never written it.
        is_bare = coding == b"deflate" and not _has_header(self._body)
        self._format = _RAW if is_bare else _EITHER
        self._object = zlib.decompressobj(self._format)

    def inflate(self, most: int | None) -> bool:
        """Go on until all is done (True) or `most` bytes have come out.

        Raises:
            InvalidArg: see `decompressed`.
        """
        result = self.result
        while most is None or len(result) < most:
            room = min(_STEP, self._limit + 1 - len(result))
            try:
                step = self._object.decompress(self._next_slice(), room)
            except zlib.error as exc:
                raise InvalidArg(f"the request's body is not valid {self._coding}: {exc}") from None
            result += step
            self._is_full = len(step) == room
            if len(result) > self._limit:
                raise InvalidArg(
                    f"the request's decompressed size exceeds the maximum allowed value of {self._limit} "
                    f"bytes. Use --http-max-input-size to increase the limit."
                )
            if self._object.eof:
                self._position -= len(self._object.unused_data)
                if self._position == len(self._body):
                    return True
                self._begin_member()
        return False

    def _next_slice(self) -> bytes | memoryview:
        """What is fed next: nothing while there may be more of what was fed before."""
        left = self._object.unconsumed_tail
        if left or self._is_full:
            return left
        data = self._body[self._position : self._position + _SLICE]
        if not data:
            raise InvalidArg(
                f"the request's body is incomplete: its {self._coding} data ends after "
                f"{len(self.result)} bytes"
            )
        self._position += len(data)
        return data

    def _begin_member(self) -> None:
        """Go on with what follows complete data: gzip may come in members."""
        left = self._body[self._position :]
        if self._format == _RAW or not _has_header(left):
            raise InvalidArg(f"the request's body has {len(left)} bytes behind its {self._coding} data")
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise InvalidArg(
                f"the request's body has more than {MOST_MEMBERS} members of {self._coding} data, the "
                "maximum allowed: compress it in one"
            )
        self._is_full = False
        self._object = zlib.decompressobj(self._format)


def _has_header(data: bytes | memoryview) -> bool:
    """Whether these bytes begin as gzip or zlib data does."""
    head = bytes(data[:2])
    return head == b"\x1f\x8b" or (len(head) == 2 and head[0] & 15 == 8 and int.from_bytes(head) % 31 == 0)


async def compressed(chunks: Iterable[Chunk], byte_size: int, coding: bytes) -> list[bytes]:
    """A body in a client's coding; a large one is worked on by a thread."""
    if byte_size <= _HERE:
        return compress(chunks, coding)
    return await asyncio.to_thread(compress, chunks, coding)


def is_quick(byte_size: int) -> bool:
    """Whether compressing so many bytes takes less than handing them to a thread."""
    return byte_size <= _HERE


def compress(chunks: Iterable[Chunk], coding: bytes) -> list[bytes]:
    """The pieces of a body in a client's coding."""
    deflater = zlib.compressobj(wbits=CODINGS[coding])
    pieces = [deflater.compress(chunk) for chunk in chunks]
    pieces.append(deflater.flush())
    return [piece for piece in pieces if piece]
