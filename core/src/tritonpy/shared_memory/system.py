"""Regions of POSIX shared memory, which clients name by a key such as `/input`.

A region is opened by its key, mapped, and never deleted: it belongs to the client. The client can also make
it smaller at any time, and whoever touches a mapped page that is gone is killed by the system (SIGBUS). So
the size is looked at before each use.
"""

from __future__ import annotations

import mmap
import os
import stat

from tritonpy.buffers import MemoryType
from tritonpy.errors import Internal, InvalidArg, Unsupported

try:
    import _posixshmem  # type: ignore[import-not-found]
except ImportError:  # Windows
    _posixshmem = None

RESERVED_PREFIX = "triton_python_backend_shm_region_"
"""What the keys of regions between Triton and its Python models begin with; no client has business there."""

_LONGEST_KEY = 255


class SystemRegion:
    """A mapped region; satisfies `Region`. The mapping goes away with the last view of it.

    Args:
        name: what the client calls it.
        key: of the shared memory object.
        offset: where in the object it begins, a multiple of the size of a page.
        byte_size: how long it is.

    Raises:
        TritonError: with Triton's code and words, and then what is wrong.
    """

    memory_type: MemoryType = MemoryType.CPU
    device_id: int = 0

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        descriptor = _open(name, key)
        try:
            self._mapping = self._map(descriptor)
        finally:
            os.close(descriptor)  # the mapping has its own

    def check(self, end: int) -> None:
        """See `Region`."""
        there = self._mapping.size() - self.offset
        if end > there:
            raise InvalidArg(
                f"Invalid offset + byte size for shared memory region: '{self.name}': '{self.key}' has been "
                f"cut to {max(there, 0)} bytes since it was registered, {end} are needed"
            )

    def read(self, offset: int, byte_size: int) -> memoryview:
        """See `Region`; nobody may write to what is returned."""
        self.check(offset + byte_size)
        return memoryview(self._mapping)[offset : offset + byte_size].toreadonly()

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """See `Region`."""
        end = offset + len(data)
        self.check(end)
        memoryview(self._mapping)[offset:end] = data

    def _map(self, descriptor: int) -> mmap.mmap:
        found = os.fstat(descriptor)
        refused = f"failed to register shared memory region '{self.name}': "
        if not stat.S_ISREG(found.st_mode):
            raise Internal(f"Invalid shared memory region: '{self.key}'")
        if self.offset + self.byte_size > found.st_size:
            raise InvalidArg(
                f"{refused}invalid args: offset {self.offset} and byte_size {self.byte_size} lead beyond the "
                f"{found.st_size} bytes of '{self.key}'"
            )
        unmappable = f"{refused}unable to process address spaceInvalid argument: "
        if self.byte_size == 0:
            raise InvalidArg(f"{unmappable}byte_size is 0, expected at least 1")
        if self.offset % mmap.ALLOCATIONGRANULARITY:
            raise InvalidArg(
                f"{unmappable}offset {self.offset} is not a multiple of {mmap.ALLOCATIONGRANULARITY}, the "
                f"size of a page"
            )
        try:
            return mmap.mmap(descriptor, self.byte_size, offset=self.offset)
        except (OSError, ValueError) as exc:
            raise InvalidArg(f"{refused}unable to process address space: {exc}") from exc


def _open(name: str, key: str) -> int:
    """Open a shared memory object for reading and writing; the key can lead nowhere else."""
    if key.removeprefix("/").startswith(RESERVED_PREFIX):
        raise InvalidArg(
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the "
            f"reserved prefix '{RESERVED_PREFIX}'"
        )
    if _posixshmem is None:
        raise Unsupported("Shared memory feature is currently not supported on Windows")
    failed = f"Unable to open shared memory region: '{key}'"
    last = key.removeprefix("/")
    if last in ("", ".", "..") or "/" in last or "\0" in last or len(os.fsencode(last)) > _LONGEST_KEY:
        raise Internal(f"{failed}: expected a name, which may begin with a '/' and has no other")
    try:
        return int(_posixshmem.shm_open("/" + last, os.O_RDWR, 0))
    except OSError as exc:
        raise Internal(f"{failed}: {exc.strerror}") from exc
