"""Responses that are compressed, where the server is told to and the client can read it."""

from __future__ import annotations

import asyncio
import zlib

from tritonpy.frontends.grpc.native.framing import PREFIX, framed
from tritonpy.options import CompressionLevel

_LEVELS = {"low": 1, "medium": 6, "high": 9}
_GZIP = 16 + zlib.MAX_WBITS
_HERE = 16 * 1024


class MessageDeflation:
    """Compresses responses; a message that would become larger stays as it is.

    Args:
        level: how hard.
    """

    def __init__(self, level: CompressionLevel) -> None:
        self._level = _LEVELS[level]

    def is_quick(self, message: bytes) -> bool:
        """True if a framed message is small enough to be compressed on the loop."""
        return len(message) <= _HERE

    def deflate(self, message: bytes) -> bytes:
        """A framed message, compressed if that makes it smaller."""
        work = zlib.compressobj(self._level, zlib.DEFLATED, _GZIP)
        parts = (work.compress(memoryview(message)[PREFIX.size :]), work.flush())
        return framed(parts, 1) if sum(map(len, parts)) + PREFIX.size < len(message) else message

    async def deflated(self, message: bytes) -> bytes:
        """The same, for a message of any size; a large one is worked on by a thread."""
        if self.is_quick(message):
            return self.deflate(message)
        return await asyncio.to_thread(self.deflate, message)
