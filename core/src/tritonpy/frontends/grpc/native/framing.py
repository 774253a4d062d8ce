"""The frames of gRPC: each message has five bytes before it, whether it is compressed and how long it is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

PREFIX = struct.Struct(">BI")
"""Whether a message is compressed, and how many bytes follow."""
LARGE = 64 * 1024
"""A message that announces more gets its buffer with the first bytes beyond this."""

Body: TypeAlias = bytes | memoryview

_PREFIX_SIZE = PREFIX.size


class BrokenFraming(Exception):
    """The bytes of a stream are no messages."""


class MessageReader:
    """Cuts messages out of the bytes of a stream.

    Nothing is allocated for what is only announced: a large message gets one buffer of its size when more of
    it has come than `LARGE`, and takes its memory as bytes arrive.

    Args:
        announced: called with the size of each message whose rest is still to come; may raise to refuse it.

    Attributes:
        size: of the message that is being read; 0 for none, or while its size is not known.
    """

    __slots__ = ("_announced", "_buffer", "_count", "_flag", "_is_within", "_received", "_small", "size")

    def __init__(self, announced: Callable[[int], None]) -> None:
        self._announced = announced
        self._small = bytearray()  # of a prefix, or of a message that is small so far
        self._received = 0  # bytes of what is being read
        self._buffer: memoryview | None = None
        self._flag = 0
        self._is_within = False  # the prefix is complete
        self._count = 0  # of messages
        self.size = 0

    @property
    def received(self) -> tuple[int, int]:
        """Changes with each byte of a message."""
        return self._count, self._received

    @property
    def is_between(self) -> bool:
        """Nothing of a message has come that is not complete."""
        return not (self._received or self._is_within)

    def feed(self, data: bytes) -> Iterator[tuple[int, Body]]:
        """Take bytes; yields the messages that they complete, each with its flag.

        What comes behind a message is looked at when that has been taken.

        Raises:
            BrokenFraming: a flag is neither 0 nor 1.
        """
        position, end = 0, len(data)
        while True:
            if not self._is_within:
                wanted = _PREFIX_SIZE - self._received
                if end - position < wanted:
                    if position < end:
                        self._small += data[position:]
                        self._received += end - position
                    return
                prefix = data[position : position + wanted]
                if self._small:
                    prefix = bytes(self._small) + prefix
                    self._small.clear()
                position += wanted
                self._flag, self.size = PREFIX.unpack(prefix)
                if self._flag > 1:
                    raise BrokenFraming(f"a message begins with the flag {self._flag}")
                self._is_within = True
                self._received = 0
                if self.size > end - position:
                    self._announced(self.size)
            left = self.size - self._received
            if end - position < left:
                self._keep(data, position, end)
                return
            body: Body
            if not self._received:
                body = data[position : position + left]
            else:
                self._keep(data, position, position + left)
                body = self._take()
            position += left
            self._count += 1
            self._is_within = False
            self._received = self.size = 0
            yield self._flag, body

    def _keep(self, data: bytes, position: int, end: int) -> None:
        if position == end:
            return
        received = self._received
        self._received = received + end - position
        if self._buffer is None:
            if self._received <= LARGE:
                self._small += memoryview(data)[position:end]
                return
            self._buffer = np.empty(self.size, np.uint8).data
            self._buffer[:received] = self._small
            self._small.clear()
        self._buffer[received : self._received] = memoryview(data)[position:end]

    def _take(self) -> Body:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            return buffer
        message = bytes(self._small)
        self._small.clear()
        return message


def framed(parts: Sequence[bytes | bytearray | memoryview], flag: int = 0) -> bytes:
    """One message of the parts, with its prefix."""
    return b"".join((PREFIX.pack(flag, sum(map(len, parts))), *parts))
