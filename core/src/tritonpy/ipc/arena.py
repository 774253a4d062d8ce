"""Shared memory that cannot leak: anonymous segments, passed on as descriptors.

Each end of a channel owns an `Arena` that it alone allocates from, and reads the other end's through
`PeerSegments`. A segment has no name anywhere: the kernel frees it when both ends are gone,
however they died.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

CONTROL_SLOTS = 16384
"""Requests that may be open at one worker; the server's segment 0 holds one cancellation flag for each."""

_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SMALLEST = 4096
_SEGMENT_BYTE_SIZE = 4 * 1024 * 1024
_ANNOUNCE = struct.Struct("<IQ")


def _anonymous_file(byte_size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tritonpy", os.MFD_CLOEXEC)
    else:  # macOS: a name that exists only for an instant
        import _posixshmem  # type: ignore[import-not-found]

        name = f"/tritonpy-{os.getpid()}-{os.urandom(6).hex()}"
        fd = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
        _posixshmem.shm_unlink(name)
    os.ftruncate(fd, byte_size)
    return fd


class Arena:
    """Blocks of shared memory that this end writes and the other end reads.

    Blocks are powers of two; a freed block is reused before new memory is touched. Thread-safe: answers are
    written by model threads, releases arrive on another.

    Args:
        segment_socket: where a new segment's descriptor is sent; the other end takes it from there when it
            first meets a reference into the segment.
    """

    def __init__(self, segment_socket: socket.socket) -> None:
        self._socket = segment_socket
        self._lock = threading.Lock()
        self._segments: list[mmap.mmap] = []
        self._free: dict[int, list[int]] = {}
        self._leased: dict[int, int] = {}
        self._bump = 0
        self._bump_end = 0

    @property
    def byte_size(self) -> int:
        """Bytes of all segments together."""
        return sum(len(segment) for segment in self._segments)

    @property
    def leased_count(self) -> int:
        """Blocks the other end has not given back."""
        return len(self._leased)

    def add_segment(self, byte_size: int) -> mmap.mmap:
        """Map a new zeroed segment and send it to the other end."""
        fd = _anonymous_file(byte_size)
        try:
            segment = mmap.mmap(fd, byte_size)
            announcement = _ANNOUNCE.pack(len(self._segments), byte_size)
            socket.send_fds(self._socket, [announcement], [fd])
        finally:
            os.close(fd)
        self._segments.append(segment)
        return segment

    def allocate(self, byte_size: int) -> tuple[int, memoryview]:
        """Take a block; it is the caller's to fill until the reference is sent.

        Returns:
            The block's reference, and a writable view of `byte_size` bytes.
        """
        size_class = max(_SMALLEST, 1 << (byte_size - 1).bit_length())
        with self._lock:
            free = self._free.get(size_class)
            reference = free.pop() if free else self._carve(size_class)
            self._leased[reference] = size_class
        offset = reference & _OFFSET_MASK
        view = memoryview(self._segments[reference >> _OFFSET_BITS])
        return reference, view[offset : offset + byte_size]

    def release(self, reference: int) -> None:
        """The other end has finished reading the block."""
        with self._lock:
            size_class = self._leased.pop(reference)
            self._free.setdefault(size_class, []).append(reference)

    def _carve(self, size_class: int) -> int:
        if self._bump + size_class > self._bump_end:
            byte_size = max(_SEGMENT_BYTE_SIZE, size_class)
            self.add_segment(byte_size)
            self._bump, self._bump_end = 0, byte_size
        reference = (len(self._segments) - 1) << _OFFSET_BITS | self._bump
        self._bump += size_class
        return reference


class PeerSegments:
    """The other end's segments, mapped here as they are first referred to.

    Args:
        segment_socket: where the other end sends descriptors, always before the frame that needs them.
        on_release: called with a block's reference when nothing here reads it any more; from whatever thread
            dropped the last view.
    """

    def __init__(self, segment_socket: socket.socket, on_release: Callable[[int], None]) -> None:
        self._socket = segment_socket
        self._on_release = on_release
        self._segments: list[mmap.mmap] = []
        self._receive_lock = threading.Lock()
        self._owners: dict[int, Any] = {}  # Any: weak references to the arrays that own blocks

    def segment(self, index: int) -> mmap.mmap:
        """Segment number `index` of the other end; from any thread."""
        if index >= len(self._segments):
            with self._receive_lock:
                while index >= len(self._segments):
                    self._receive_segment()
        return self._segments[index]

    def _receive_segment(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._socket, _ANNOUNCE.size, 1)
        if not fds:
            raise ConnectionError("the other end closed the channel before it sent a segment")
        try:
            number, byte_size = _ANNOUNCE.unpack(data)
            assert number == len(self._segments)  # descriptors arrive in the order of creation
            self._segments.append(mmap.mmap(fds[0], byte_size))
        finally:
            os.close(fds[0])

    def view(self, reference: int, byte_size: int) -> np.ndarray[Any, Any]:
        """The bytes of a block, as an array; the block is given back when its last view is gone."""
        segment = self.segment(reference >> _OFFSET_BITS)
        # The mapping is the owner's base and no array, so every view of the owner keeps the owner alive.
        owner = np.frombuffer(segment, np.uint8, byte_size, reference & _OFFSET_MASK)
        on_release = self._on_release
        owners = self._owners

        def give_back(_: object) -> None:
            del owners[reference]
            on_release(reference)

        owners[reference] = weakref.ref(owner, give_back)
        return owner
