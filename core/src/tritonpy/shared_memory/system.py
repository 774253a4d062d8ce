"""Regions of POSIX shared memory, which clients name by a key such as `/input`.

A region is opened by its key and never deleted: it belongs to the client, which may change it or make it
smaller at any time. So it is not mapped: a process that touches a mapped page that is gone is killed
(SIGBUS). The system copies instead, which takes hardly longer and says how much is there.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import weakref

from tritonpy.buffers import MemoryType
from tritonpy.errors import Internal, InvalidArg, Unsupported

try:
    import _posixshmem  # type: ignore[import-not-found]
except ImportError:  # Windows
    _posixshmem = None

RESERVED_PREFIX = "triton_python_backend_shm_region_"
"""Prefix of the keys of regions between Triton and its Python models; refused to clients."""

_LONGEST_KEY = 255


class SystemRegion:
    """An open region; satisfies `Region`. It is closed with its last reference.

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
    address: int = 0

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self._descriptor = _open(name, key)
        weakref.finalize(self, os.close, self._descriptor)
        self.file: tuple[int, int] | None = (self._descriptor, offset)
        self._check_extent()

    def check(self, end: int) -> None:
        # A quarter of the cost of `os.fstat`; nothing reads or writes at the descriptor's own position.
        self._require(end, os.lseek(self._descriptor, 0, os.SEEK_END) - self.offset)

    def read_into(self, offset: int, target: memoryview) -> None:
        position, end = offset, offset + len(target)
        while position < end:
            start = position - offset
            count = os.preadv(self._descriptor, [target[start:]], self.offset + position)
            if count == 0:
                self._require(end, position)
            position += count

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.check(offset + len(data))
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self._descriptor, rest, self.offset + offset)
            offset += count
            rest = rest[count:]

    def _require(self, end: int, there: int) -> None:
        if end > there:
            raise InvalidArg(
                f"Invalid offset + byte size for shared memory region: '{self.name}': '{self.key}' has been "
                f"cut to {max(there, 0)} bytes since it was registered, {end} are needed"
            )

    def _check_extent(self) -> None:
        found = os.fstat(self._descriptor)
        refused = f"failed to register shared memory region '{self.name}': "
        if not stat.S_ISREG(found.st_mode):
            raise Internal(f"Invalid shared memory region: '{self.key}'")
        if self.offset + self.byte_size > found.st_size:
            raise InvalidArg(
                f"{refused}invalid args: offset {self.offset} and byte_size {self.byte_size} lead beyond the "
                f"{found.st_size} bytes of '{self.key}'"
            )
        # What Triton cannot map is no region here either: a client should work with both.
        unmappable = f"{refused}unable to process address spaceInvalid argument: "
        if self.byte_size == 0:
            raise InvalidArg(f"{unmappable}byte_size is 0, expected at least 1")
        if self.offset % mmap.PAGESIZE:
            raise InvalidArg(
                f"{unmappable}offset {self.offset} is not a multiple of {mmap.PAGESIZE}, the size of a page"
            )


def _open(name: str, key: str) -> int:
    """Open a shared memory object for reading and writing; the key can lead nowhere else."""
    last = key.lstrip("/")  # as the system does
    if last.startswith(RESERVED_PREFIX):
        raise InvalidArg(
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the "
            f"reserved prefix '{RESERVED_PREFIX}'"
        )
    if sys.platform != "linux":  # elsewhere objects can only be mapped
        system = "Windows" if sys.platform == "win32" else sys.platform
        raise Unsupported(f"Shared memory feature is currently not supported on {system}")
    if last in ("", ".", "..") or "/" in last or "\0" in last or len(os.fsencode(last)) > _LONGEST_KEY:
        raise InvalidArg(
            f"cannot register shared memory region '{name}' - invalid shm key '{key}': expected a name, "
            f"which may begin with a '/' and has no other"
        )
    try:
        return int(_posixshmem.shm_open("/" + last, os.O_RDWR, 0))
    except OSError as exc:
        raise Internal(f"Unable to open shared memory region: '{key}': {exc.strerror}") from exc
