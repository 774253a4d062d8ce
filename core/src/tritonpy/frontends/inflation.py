"""Decompression of requests: the result is bounded, and counted as it comes out."""

from __future__ import annotations

import asyncio
import zlib

from tritonpy.admission import Admission
from tritonpy.errors import InvalidArg

MOST_MEMBERS = 65_536
"""Pieces of gzip data that a body may be put together from; as many as chunks."""

_EITHER = 32 + zlib.MAX_WBITS  # as in Triton, the header of the data says which of the two it is
_RAW = -zlib.MAX_WBITS
_STEP = 256 * 1024
_SLICE = 16 * 1024
_HERE = 16 * 1024
_INFLATED_HERE = 64 * 1024
_FIRST_STEP = 1024 * 1024


async def inflated(
    body: bytes | memoryview, coding: bytes, limit: int, flag: str, admission: Admission
) -> memoryview:
    """A body decompressed; a large one by a thread.

    What comes out is counted while this runs, before it takes its memory; the caller counts what it keeps.

    Args:
        body: compressed.
        coding: `gzip` or `deflate`.
        limit: bytes that it may become.
        flag: the option that sets the limit.
        admission: counts the bytes of requests that are held.

    Raises:
        InvalidArg: it is corrupt, incomplete or becomes larger than `limit`, which is noticed before that
            memory is taken.
        Unavailable: there is no room for what comes out.
    """
    if not body:
        raise InvalidArg("nothing to be decompressed")
    inflater = Inflater(body, coding, limit, flag)
    is_small = len(body) <= _HERE
    most, counted = _INFLATED_HERE if is_small else _FIRST_STEP, 0
    try:
        while True:
            more = min(most, limit) - counted
            if not admission.admits(more):
                raise admission.refusal(counted + more)
            admission.hold(more)
            counted += more
            if is_small and most == _INFLATED_HERE:
                is_done = inflater.inflate(most)
            else:
                is_done = await asyncio.to_thread(inflater.inflate, most)
            if is_done:
                return memoryview(inflater.result)
            most *= 2
    finally:
        admission.release(counted)


class Inflater:
    """Decompresses one body, step by step.

    It is fed in slices, since `zlib` copies what it has not used yet: of a whole body that would be done for
    each step and each member anew, and take longer than all the rest.

    Args:
        body: compressed.
        coding: `gzip` or `deflate`; the header of the data says which of the two it is.
        limit: bytes that it may become.
        flag: the option that sets the limit, for the message that refuses it.

    Attributes:
        result: what has come out so far.
    """

    def __init__(self, body: bytes | memoryview, coding: bytes, limit: int, flag: str) -> None:
        self.result = bytearray()
        self._coding = coding.decode()
        self._limit = limit
        self._flag = flag
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
            InvalidArg: see `inflated`.
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
                    f"bytes. Use {self._flag} to increase the limit."
                )
            if self._object.eof:
                self._position -= len(self._object.unused_data)
                if self._position == len(self._body):
                    return True
                self._begin_member()
        return False

    def _next_slice(self) -> bytes | memoryview:
        """The next bytes to feed: none while there may be more of what was fed before."""
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
    """True if these bytes begin as gzip or zlib data does."""
    head = bytes(data[:2])
    return head == b"\x1f\x8b" or (len(head) == 2 and head[0] & 15 == 8 and int.from_bytes(head) % 31 == 0)
