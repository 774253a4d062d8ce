"""A registered region, and the part of one that holds a tensor."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tritonpy.buffers import MemoryType
from tritonpy.errors import Internal


class Region(Protocol):
    """Memory of a client that is open in this process, until its last reference is gone.

    Attributes:
        name: what the client calls it.
        byte_size: of the whole region.
        memory_type, device_id: where it lies.
        address: where it is mapped into this process, 0 for one that is not.
        file: an open descriptor and the position where it begins there; None for one that is no file.
    """

    name: str
    byte_size: int
    memory_type: MemoryType
    device_id: int
    address: int
    file: tuple[int, int] | None

    def check(self, end: int) -> None:
        """Refuse a region whose memory is gone.

        Raises:
            InvalidArg: the region has become shorter than `end`.
        """

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy bytes of the region to host memory, as many as there is room for.

        Raises:
            TritonError: they cannot be read any more.
        """

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes into the region.

        Raises:
            TritonError: there is no room for them any more.
        """


class RegionSlice:
    """Part of a region, where a tensor lies or is wanted; satisfies `BufferLocation`.

    It keeps the region open: one that is unregistered meanwhile is closed with its last slice.
    """

    __slots__ = ("_offset", "_region", "_snapshot", "byte_size", "device_id", "memory_type")

    def __init__(self, region: Region, offset: int, byte_size: int) -> None:
        self._region = region
        self._offset = offset
        self._snapshot: memoryview | None = None
        self.byte_size = byte_size
        self.memory_type = region.memory_type
        self.device_id = region.device_id

    @property
    def address(self) -> int:
        start = self._region.address
        return start and start + self._offset

    @property
    def file(self) -> tuple[int, int] | None:
        start = self._region.file
        return start and (start[0], start[1] + self._offset)

    def host_view(self) -> memoryview:
        """A view of the bytes, the same ones each time even if the client changes its memory."""
        if self._snapshot is None:
            snapshot = np.empty(self.byte_size, np.uint8).data
            self._region.read_into(self._offset, snapshot)
            self._snapshot = snapshot.toreadonly()
        return self._snapshot

    def read_into(self, target: memoryview) -> None:
        """Copy the bytes to where they are needed, without another copy between.

        Args:
            target: room for all of them.

        Raises:
            TritonError: see `host_view`.
        """
        if self._snapshot is not None:  # these have been checked
            target[:] = self._snapshot
        else:
            self._region.read_into(self._offset, target)

    def write(self, output: str, data: bytes | bytearray | memoryview) -> None:
        """Copy the bytes of an output into it.

        Args:
            output: the name, for errors.
            data: its wire form.

        Raises:
            Internal: they are more than the client made room for; code and text are Triton's.
            TritonError: the region has become smaller meanwhile.
        """
        if len(data) > self.byte_size:
            raise Internal(
                f"shared memory size specified with the request for output '{output}' ({self.byte_size} "
                f"bytes) should be at least {len(data)} bytes to hold the results"
            )
        self._region.write(self._offset, data)
