"""Frames between a program and a server: a small head in JSON, and the bytes of tensors behind it.

    magic `TPB1` · bytes of the head (uint32) · bytes of the tensors (uint64) · head · tensors

All numbers are little endian. The head is an object with a `kind`; unlike the frames of workers it is for
data from strangers, so it can be nothing but plain values, and both sizes have limits that are compared
before anything is kept. `FrameReader` reads without a socket.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tritonpy.plugin import JsonObject

MAGIC = b"TPB1"
_SIZES = struct.Struct("<4sIQ")

FIRST_HEAD_BYTES = 4096
"""The largest head before the other side has proved that it knows the token; without tensors."""
MOST_HEAD_BYTES = 16 * 1024 * 1024
"""The largest head after that."""
MOST_DATA_BYTES = 1024 * 1024 * 1024
"""The largest tensors of one frame together, unless settings say otherwise."""

_SCRATCH_BYTES = 256 * 1024
_JOINED_BYTES = 64 * 1024


class BadFrame(Exception):
    """What came is no frame, or one that is not allowed here; the connection cannot go on."""


class Frame(NamedTuple):
    """A frame that has come.

    Attributes:
        head: with a `kind`.
        data: the bytes of its tensors; nobody else has them, so they may be written to.
    """

    head: JsonObject
    data: memoryview

    @property
    def kind(self) -> str:
        """What it is."""
        return str(self.head["kind"])


def encode(
    head: JsonObject, parts: Sequence[bytes | bytearray | memoryview] = ()
) -> list[bytes | memoryview]:
    """The buffers to be written for a frame, one after the other; large parts are not copied.

    Args:
        head: with a `kind`.
        parts: bytes of tensors.
    """
    text = json.dumps(head, separators=(",", ":")).encode()
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    size = sum(view.nbytes for view in views)
    start = _SIZES.pack(MAGIC, len(text), size) + text
    if size <= _JOINED_BYTES:
        return [b"".join([start, *views])]
    return [start, *views]


class FrameReader:
    """Cuts a stream of bytes into frames; large ones are received where they stay.

    Args:
        most_head_bytes: the largest head; may be raised between frames.
        most_data_bytes: the most bytes of tensors in a frame; likewise.
    """

    def __init__(self, most_head_bytes: int = FIRST_HEAD_BYTES, most_data_bytes: int = 0) -> None:
        self.most_head_bytes = most_head_bytes
        self.most_data_bytes = most_data_bytes
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._start = self._end = 0
        self._large: memoryview | None = None  # a frame that does not fit, and how much of it is there
        self._large_end = 0

    def buffer(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        if self._start:  # at most a part of one frame is left
            left = bytes(self._scratch[self._start : self._end])
            self._scratch[: len(left)] = left
            self._start, self._end = 0, len(left)
        return self._scratch[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """The frames that `count` bytes complete, which were put into `buffer()`.

        Raises:
            BadFrame: they are none.
        """
        if self._large is not None:
            self._large_end += count
            if self._large_end < len(self._large):
                return []
            whole, self._large = self._large, None
            return [_read(whole)]
        self._end += count
        frames: list[Frame] = []
        while True:
            given = self._scratch[self._start : self._end]
            size = self._frame_size(given)
            if not size:
                return frames
            if len(given) < size:
                if size > len(self._scratch):
                    self._begin_large(given, size)
                return frames
            own = _room(size)
            own[:] = given[:size]
            frames.append(_read(own))
            self._start += size

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """The frames that these bytes complete; for connections that bring their own.

        Raises:
            BadFrame: they are none.
        """
        frames: list[Frame] = []
        while data:
            room = self.buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            frames += self.filled(count)
            data = data[count:]
        return frames

    @property
    def is_within(self) -> bool:
        """True if a frame has begun and not ended."""
        return self._large is not None or self._end > self._start

    def _begin_large(self, given: memoryview, size: int) -> None:
        self._large = _room(size)
        self._large[: len(given)] = given
        self._large_end = len(given)
        self._start = self._end = 0

    def _frame_size(self, given: memoryview) -> int:
        """Bytes of the frame that begins here; 0 where that cannot be told yet."""
        if bytes(given[: len(MAGIC)]) != MAGIC[: len(given)]:
            raise BadFrame(f"got {bytes(given[:16])!r}, expected a frame, which begins with {MAGIC!r}")
        if len(given) < _SIZES.size:
            return 0
        _, head_size, data_size = _SIZES.unpack_from(given)
        if head_size > self.most_head_bytes:
            raise BadFrame(f"got a head of {head_size} bytes, expected {self.most_head_bytes} at most here")
        if data_size > self.most_data_bytes:
            raise BadFrame(
                f"got tensors of {data_size} bytes in one frame, expected {self.most_data_bytes} at most here"
            )
        return int(_SIZES.size + head_size + data_size)


def _room(byte_size: int) -> memoryview:
    """Memory of any content; pages that nothing is written to cost nothing."""
    return np.empty(byte_size, np.uint8).data


def _read(whole: memoryview) -> Frame:
    head_end = _SIZES.size + _SIZES.unpack_from(whole)[1]
    try:
        head = json.loads(bytes(whole[_SIZES.size : head_end]))
    except (ValueError, RecursionError) as exc:
        raise BadFrame(f"the head of a frame is no JSON that can be read: {type(exc).__name__}") from None
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise BadFrame("the head of a frame is no object with a 'kind'")
    return Frame(head, whole[head_end:])
