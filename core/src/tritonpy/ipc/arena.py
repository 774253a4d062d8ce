"""Shared memory that cannot leak: anonymous segments, passed on as descriptors.

Each end of a channel owns an `Arena` that it alone allocates from, and reads the other end's through
`PeerSegments`. A segment has no name anywhere: the kernel frees it when both ends are gone,
however they died.
"""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

CONTROL_SLOTS = 16384
ADMITTED_LEVELS = CONTROL_SLOTS  # the place of a byte behind them; see `tritonpy.logs`
CONTROL_BYTE_SIZE = CONTROL_SLOTS + 1
"""Requests that may be open at one worker; the server's segment 0 holds one cancellation flag for each."""

_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_SMALLEST = 4096
_SEGMENT_BYTE_SIZE = 4 * 1024 * 1024
_LARGE = 4 * 1024 * 1024
_LARGEST_STEP = 256 * 1024 * 1024
_KEEP_BYTE_SIZE = 256 * 1024 * 1024
_REMOVE: int | None = getattr(mmap, "MADV_REMOVE", None)  # Linux
_DESCRIPTOR = struct.Struct("i")
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


class SharedMemoryExhausted(MemoryError):
    """No block of the wanted size can be had; the text says what is free and which setting to raise."""


class Arena:
    """Blocks of shared memory that this end writes and the other end reads.

    Blocks are powers of two; a freed block is reused before new memory is touched. Thread-safe: answers are
    written by model threads, releases arrive on another.

    Args:
        segment_socket: where a new segment's descriptor is sent; the other end takes it from there when it
            first meets a reference into the segment.

    Attributes:
        first_byte_size: size of the first segment for blocks.
        growth_byte_size: size of the others; a larger block gets a segment of its own size.
        most_byte_size: what all segments together must not exceed; 0 for no limit of ours.
        keep_byte_size: bytes of large free blocks whose memory is kept for the next ones; a block beyond that
            stays reserved, but its memory goes back to the system.
        backend: the backend whose setting limits it, for the message that nothing is left.
        on_forget: called with the number of a lent segment that will not be referred to again.
    """

    def __init__(self, segment_socket: socket.socket) -> None:
        self._socket = segment_socket
        self._lock = threading.Lock()
        self._segments: list[mmap.mmap | None] = []
        self._free: dict[int, list[int]] = {}
        self._leased: dict[int, int] = {}
        self._bump_number = 0  # the segment that blocks are cut from
        self._bump = 0
        self._bump_end = 0
        self._kept_byte_size = 0
        self._emptied: set[int] = set()
        self._writing: dict[int, _Writing] = {}
        self._unused: deque[int] = deque()  # by finalizers, which must not wait for the lock
        self._lent: dict[int, _LentSegment] = {}
        self._lent_numbers: dict[tuple[PeerSegments, int], int] = {}
        self.first_byte_size = _SEGMENT_BYTE_SIZE
        self.growth_byte_size = _SEGMENT_BYTE_SIZE
        self.most_byte_size = 0
        self.keep_byte_size = _KEEP_BYTE_SIZE
        self.backend = "python"
        self.on_forget: Callable[[int], None] = _forget_nothing

    @property
    def byte_size(self) -> int:
        """Bytes of all segments of its own together."""
        return sum(len(segment) for segment in self._segments if segment is not None)

    @property
    def free_byte_size(self) -> int:
        """Bytes of these outside of blocks in use."""
        with self._lock:
            return self.byte_size - sum(self._leased.values())

    @property
    def leased_count(self) -> int:
        """Blocks the other end has not given back."""
        return len(self._leased) + sum(lent.count for lent in self._lent.values())

    def add_segment(self, byte_size: int) -> mmap.mmap:
        """Map a new zeroed segment and send it to the other end."""
        fd = _anonymous_file(byte_size)
        try:
            segment = mmap.mmap(fd, byte_size)
            self._announce(fd, byte_size)
        finally:
            os.close(fd)
        self._segments.append(segment)
        return segment

    def allocate(self, byte_size: int) -> tuple[int, memoryview]:
        """Take a block; it is the caller's to fill until the reference is sent.

        Returns:
            The block's reference, and a writable view of `byte_size` bytes.

        Raises:
            SharedMemoryExhausted: the system gives no more memory, or `most_byte_size` is reached.
            ConnectionError: the other end is gone.
        """
        while self._unused:
            self.release(self._unused.popleft())
        size_class = _size_class(byte_size)
        with self._lock:
            free = self._free.get(size_class)
            if free:
                reference = free.pop()
                if size_class >= _LARGE and reference not in self._emptied:
                    self._kept_byte_size -= size_class
                self._emptied.discard(reference)
            else:
                reference = self._carve(size_class, byte_size)
            self._leased[reference] = size_class
        offset = reference & _OFFSET_MASK
        view = memoryview(self._segments[reference >> _OFFSET_BITS])  # type: ignore[arg-type]  # not a lent one
        return reference, view[offset : offset + byte_size]

    def lease(self, byte_size: int) -> np.ndarray[Any, Any] | None:
        """Take a block for a tensor that is still to be written; `give` passes it on without a copy.

        Args:
            byte_size: at least 1.

        Returns:
            The block as an array of bytes of any content, or None when there is none to spare: those that are
            not passed on yet may be a quarter of `most_byte_size`. One that is dropped is free again.
        """
        if self.most_byte_size:
            held = sum(writing.byte_size for writing in tuple(self._writing.values()))
            if 4 * (held + _size_class(byte_size)) > self.most_byte_size:
                return None
        try:
            reference, view = self.allocate(byte_size)
        except (SharedMemoryExhausted, ConnectionError):
            return None
        # Views of views have this array as their base, because its own is none.
        block = np.frombuffer(view, np.uint8)
        key = id(block)

        def end(_: object) -> None:
            if self._writing.pop(key, None) is not None:
                self._unused.append(reference)

        self._writing[key] = _Writing(reference, _size_class(byte_size), weakref.ref(block, end))
        return block

    def give(self, data: memoryview) -> int | None:
        """Pass on a block that `lease` returned, without a copy; from here on it is the other end's.

        Args:
            data: the bytes of an array that begins where the block begins.

        Returns:
            The block's reference, or None when the bytes are no such block, or it was passed on before.
        """
        if not self._writing:  # as in nearly all workers
            return None
        array = data.obj
        if not isinstance(array, np.ndarray) or array.nbytes != data.nbytes:
            return None
        block = array if id(array) in self._writing else array.base
        writing = self._writing.get(id(block))
        if writing is None or writing.block() is not block or array.ctypes.data != block.ctypes.data:
            return None
        return writing.reference if self._writing.pop(id(block), None) is not None else None

    def lend(self, block: np.ndarray[Any, Any]) -> int | None:
        """Refer to a block that came from a third process, so that the other end reads it where it is.

        Args:
            block: what `PeerSegments.view` of the third process returned; held until the other end has
                finished reading.

        Returns:
            A reference, or None when the array is no such block, or its segment cannot be lent.
        """
        source = _lendable.get(id(block))
        if source is None:
            return None
        peer, reference = source
        index = reference >> _OFFSET_BITS
        with self._lock:
            number = self._lent_numbers.get((peer, index))
            if number is None:
                descriptor = peer.descriptor(index)
                if descriptor is None:
                    return None
                number = len(self._segments)
                try:
                    self._announce(*descriptor)
                except OSError:  # the other end is gone, or takes no more: then it can only be copied
                    return None
                self._segments.append(None)
                self._lent_numbers[peer, index] = number
                self._lent[number] = _LentSegment()
                peer.on_close[self, index] = lambda: self._return_segment(peer, index)
            lent = self._lent[number]
            reference = number << _OFFSET_BITS | reference & _OFFSET_MASK
            lent.count += 1
            lent.blocks.setdefault(reference, []).append(block)
        return reference

    def release(self, reference: int) -> None:
        """The other end has finished reading the block."""
        number = reference >> _OFFSET_BITS
        with self._lock:
            lent = self._lent.get(number)
            if lent is None:
                size_class = self._leased.pop(reference)
                if size_class >= _LARGE:
                    self._keep_or_empty(reference, size_class)
                self._free.setdefault(size_class, []).append(reference)
                return
            blocks = lent.blocks[reference]
            block = blocks.pop()
            if not blocks:
                del lent.blocks[reference]
            lent.count -= 1
            is_over = lent.is_closed and lent.count == 0
            if is_over:
                del self._lent[number]
        del block  # outside of the lock: it may be the last view, and its end releases a block elsewhere
        if is_over:
            self.on_forget(number)

    def close(self) -> None:
        """The other end is gone: release all segments, and everything that was lent to it."""
        with self._lock:
            lent, self._lent = self._lent, {}
            numbers, self._lent_numbers = self._lent_numbers, {}
            # Segments are unmapped with their last views, not when a garbage collection finds this arena.
            self._segments = []
            self.on_forget = _forget_nothing
        for peer, index in numbers:
            peer.on_close.pop((self, index), None)
        del lent  # outside of the lock, as in `release`

    def _keep_or_empty(self, reference: int, size_class: int) -> None:
        """Return the pages of a large free block to the system, unless few are kept so far."""
        if self._kept_byte_size + size_class <= self.keep_byte_size or _REMOVE is None or not self._segments:
            self._kept_byte_size += size_class
            return
        segment = self._segments[reference >> _OFFSET_BITS]
        assert segment is not None  # not a lent one
        segment.madvise(_REMOVE, reference & _OFFSET_MASK, size_class)
        self._emptied.add(reference)

    def _return_segment(self, peer: PeerSegments, index: int) -> None:
        """The process that a lent segment belongs to is gone; so is the segment with its last lease."""
        with self._lock:
            number = self._lent_numbers.pop((peer, index), None)
            if number is None:
                return
            lent = self._lent[number]
            lent.is_closed = True
            if lent.count:
                return
            del self._lent[number]
        self.on_forget(number)

    def _announce(self, fd: int, byte_size: int) -> None:
        socket.send_fds(self._socket, [_ANNOUNCE.pack(len(self._segments), byte_size)], [fd])

    def _carve(self, size_class: int, wanted: int) -> int:
        if self._bump + size_class > self._bump_end:
            usual = self.growth_byte_size if self._bump_end else self.first_byte_size
            # In proportion to what there is: segments stay few, and untouched pages cost nothing.
            in_proportion = min(self.byte_size // 4, _LARGEST_STEP)
            self._grow(max(usual, size_class, in_proportion), size_class, wanted)
        reference = self._bump_number << _OFFSET_BITS | self._bump
        self._bump += size_class
        return reference

    def _grow(self, byte_size: int, size_class: int, wanted: int) -> None:
        held, most = self.byte_size, self.most_byte_size
        if most and held + byte_size > most:
            byte_size = most - held  # what is left, if the block fits in there
        reason = ""
        if byte_size >= size_class:
            try:
                self.add_segment(byte_size)
            except BlockingIOError:
                reason = " (the other end takes no more segments)"
            except (OSError, MemoryError) as exc:
                if isinstance(exc, ConnectionError) or self._socket.fileno() < 0:
                    raise ConnectionError("the other end is gone") from exc
                reason = f" ({exc})"
            else:
                self._bump_number = len(self._segments) - 1
                self._bump, self._bump_end = 0, byte_size
                return
        free = held - sum(self._leased.values())
        limit = f"of {most}" if most else f"of {held} taken from the system"
        raise SharedMemoryExhausted(
            f"shared memory is exhausted{reason}: wanted {wanted} bytes (a block of {size_class}), free are "
            f"{free} bytes {limit} in pieces that do not fit; the limit is "
            f"--backend-config={self.backend},{MOST_SETTING}"
        )


MOST_SETTING = "shm-max-byte-size"


def _size_class(byte_size: int) -> int:
    return max(_SMALLEST, 1 << (byte_size - 1).bit_length())


class _Writing:
    """A block that is not passed on yet."""

    __slots__ = ("block", "byte_size", "reference")

    def __init__(
        self, reference: int, byte_size: int, block: Any
    ) -> None:  # Any: a weak reference, see `lease`
        self.reference = reference
        self.byte_size = byte_size
        self.block = block


class _LentSegment:
    """A segment of a third process that the other end reads: its leases, and whether its owner is gone."""

    __slots__ = ("blocks", "count", "is_closed")

    def __init__(self) -> None:
        self.blocks: dict[int, list[Any]] = {}  # Any: arrays that hold the third process's blocks
        self.count = 0
        self.is_closed = False


def _forget_nothing(_: int) -> None:
    return None


_lendable: dict[int, tuple[PeerSegments, int]] = {}  # by id of the array that owns a block


class PeerSegments:
    """The other end's segments, mapped here as they are first referred to.

    Args:
        segment_socket: where the other end sends descriptors, always before the frame that needs them.
        on_release: called with a block's reference when nothing here reads it any more; on the thread
            that dropped the last view.
        lends: keep the descriptors, so that `Arena.lend` can pass blocks on to a third process.

    Attributes:
        on_close: callbacks for the end of the other end, by the arena and number of each segment lent on.
    """

    def __init__(
        self, segment_socket: socket.socket, on_release: Callable[[int], None], *, lends: bool = False
    ) -> None:
        self._socket = segment_socket
        self._on_release = on_release
        self._lends = lends
        self._segments: list[mmap.mmap | None] = []
        self._descriptors: list[int] = []
        self._receive_lock = threading.Lock()
        self._owners: dict[int, Any] = {}  # Any: weak references to the arrays that own blocks
        self._view_count = itertools.count()
        self.on_close: dict[tuple[Arena, int], Callable[[], None]] = {}

    def segment(self, index: int) -> mmap.mmap:
        """Segment number `index` of the other end; from any thread."""
        if index >= len(self._segments):
            with self._receive_lock:
                while index >= len(self._segments):
                    self._receive_segment()
        segment = self._segments[index]
        assert segment is not None  # the other end does not refer to what it told us to forget
        return segment

    def descriptor(self, index: int) -> tuple[int, int] | None:
        """Descriptor and size of a segment, for passing it on; None once the other end is gone."""
        if index >= len(self._descriptors):
            return None
        return self._descriptors[index], len(self.segment(index))

    def forget(self, index: int) -> None:
        """The other end will not refer to this segment again; views that exist stay valid."""
        self.segment(index)  # its descriptor must not wait in the socket
        self._segments[index] = None

    def close(self) -> None:
        """The other end is gone; views that exist stay valid."""
        self._segments = []
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)
        on_close, self.on_close = self.on_close, {}
        for callback in on_close.values():
            callback()

    def receive_announced(self) -> bool:
        """Take the descriptors that have come by now; False when the other end has closed.

        A sender that does not wait could run into the limit of what a socket holds.
        """
        with self._receive_lock:
            try:
                while True:
                    self._receive_segment(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False

    def _receive_segment(self, flags: int = 0) -> None:
        # Not socket.recv_fds, which ignores its flags.
        data, ancillary, _, _ = self._socket.recvmsg(_ANNOUNCE.size, socket.CMSG_LEN(_DESCRIPTOR.size), flags)
        fds = [_DESCRIPTOR.unpack(payload)[0] for _, _, payload in ancillary]
        if not fds:
            raise ConnectionError("the other end closed the channel before it sent a segment")
        is_kept = False
        try:
            number, byte_size = _ANNOUNCE.unpack(data)
            assert number == len(self._segments)  # descriptors arrive in the order of creation
            self._segments.append(mmap.mmap(fds[0], byte_size))
            if self._lends:
                self._descriptors.append(fds[0])
                is_kept = True
        finally:
            if not is_kept:
                os.close(fds[0])

    def view(self, reference: int, byte_size: int) -> np.ndarray[Any, Any]:
        """The bytes of a block, as an array; the block is given back when its last view is gone."""
        segment = self.segment(reference >> _OFFSET_BITS)
        # The mapping is the owner's base and no array, so every view of the owner keeps the owner alive.
        owner = np.frombuffer(segment, np.uint8, byte_size, reference & _OFFSET_MASK)
        on_release = self._on_release
        owners = self._owners
        key = next(self._view_count)
        lent_as = id(owner) if self._lends else 0

        def give_back(_: object) -> None:
            del owners[key]
            if lent_as:
                del _lendable[lent_as]
            on_release(reference)

        owners[key] = weakref.ref(owner, give_back)
        if lent_as:
            _lendable[lent_as] = self, reference
        return owner
