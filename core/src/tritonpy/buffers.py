"""Buffers: the bytes of a tensor in this process, or their location in another one.

A buffer is either host memory of this process (`bytes`, `bytearray`, `memoryview` or a C-contiguous numpy
array) or a *location*: something another process owns, named so that it can be passed on without being
opened. A location is opened in the process that uses it, never on the way.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from enum import IntEnum
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

HostBuffer: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.generic]
"""Bytes in the memory of this process."""
HOST_TYPES = (bytes, bytearray, memoryview, np.ndarray)
"""What `isinstance` needs to tell a `HostBuffer` from a location."""


class MemoryType(IntEnum):
    """The values of `TRITONSERVER_MemoryType`."""

    CPU = 0
    CPU_PINNED = 1
    GPU = 2


class BufferLocation(Protocol):
    """Bytes that are not (yet) mapped into this process: a shared-memory region or a CUDA IPC handle."""

    memory_type: MemoryType
    device_id: int
    byte_size: int

    @property
    def address(self) -> int:
        """The address at which it is mapped into this process, of any memory type; 0 where it is not."""

    @property
    def file(self) -> tuple[int, int] | None:
        """An open descriptor to read it from, and the position there; None for what is no file."""

    def host_view(self) -> memoryview:
        """Open the location here and return its bytes.

        Raises:
            TritonError: the region is gone, too small, or lies on a device this process cannot read.
        """


Buffer: TypeAlias = HostBuffer | BufferLocation
"""Where the bytes of a tensor are."""


def byte_view(array: npt.NDArray[np.generic]) -> memoryview:
    """The bytes of a C-contiguous array (a copy is made when it is not), also for empty and 0-d arrays."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class BlockPool:
    """Recycles large host blocks, so that gathering a batch does not fault in fresh pages every time.

    A block comes back through the finalizer of the array that owns it and in no other way: a response that
    was "sent" may still be read by the socket's transport long after the call returned, and a block reused
    then would corrupt what a slow client receives.

    Thread-safe: an array dies on the thread that drops its last reference.
    """

    SMALLEST = 64 * 1024
    ALIGNMENT = 64
    """Bytes; frameworks copy what begins elsewhere before they compute."""

    def __init__(self, retained_byte_size: int = 256 * 1024 * 1024) -> None:
        self._free: defaultdict[int, list[npt.NDArray[np.uint8]]] = defaultdict(list)
        self._owners: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}
        self._retained = 0
        self._limit = retained_byte_size

    def lease(self, byte_size: int) -> npt.NDArray[np.uint8]:
        """Return an uninitialised array of `byte_size` bytes; dropping its last view gives it back.

        One of at least `SMALLEST` bytes begins at a multiple of `ALIGNMENT`.
        """
        if byte_size < self.SMALLEST:
            return np.empty(byte_size, np.uint8)
        size_class = 1 << (byte_size - 1).bit_length()
        try:
            raw = self._free[size_class].pop()
            self._retained -= size_class
        except IndexError:
            raw = _aligned(size_class, self.ALIGNMENT)
        # The owner's base is a memoryview, not an array, so numpy stops collapsing view chains at the
        # owner: every view of it keeps the owner alive, and the owner's death means that no reader is left.
        owner = np.frombuffer(raw.data, np.uint8, byte_size)
        key = id(owner)

        def give_back(_: object) -> None:
            del self._owners[key]
            if self._retained + size_class <= self._limit:
                self._retained += size_class
                self._free[size_class].append(raw)

        self._owners[key] = weakref.ref(owner, give_back)
        return owner


def _aligned(byte_size: int, alignment: int) -> npt.NDArray[np.uint8]:
    block = np.empty(byte_size + alignment, np.uint8)
    first = -block.ctypes.data % alignment
    return block[first : first + byte_size]
