"""Registry of the shared memory regions of all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tritonpy.errors import AlreadyExists, InvalidArg, NotFound, Unavailable, Unsupported
from tritonpy.shared_memory.cuda import REFUSED, CudaError, CudaPython, CudaRegion
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.shared_memory.system import SystemRegion

R = TypeVar("R")

RegionStatus = dict[str, Any]
"""One region as the status calls show it."""  # Any: strings and numbers


class SharedMemoryRegions:
    """Regions by name, of system and of CUDA memory together; on the loop only.

    What is unregistered takes no new requests. While there are some that use it, its memory stays open and
    its name is shown and taken.

    Args:
        is_allowed: whether clients may register and unregister.
        make_cuda: makes the way to CUDA when it is first needed.
        most: regions that may be registered.
    """

    def __init__(
        self, is_allowed: bool, make_cuda: Callable[[], CudaPython] = CudaPython, most: int = 16_384
    ) -> None:
        self._most = most
        self._is_allowed = is_allowed
        self._make_cuda = make_cuda
        self._cuda: CudaPython | None = None
        self._system_regions: dict[str, SystemRegion] = {}
        self._cuda_regions: dict[str, CudaRegion] = {}
        self._leaving_system: WeakValueDictionary[str, SystemRegion] = WeakValueDictionary()
        self._leaving_cuda: WeakValueDictionary[str, CudaRegion] = WeakValueDictionary()
        self._opening: set[str] = set()

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open a region of POSIX shared memory; see `SystemRegion`.

        Raises:
            TritonError: with Triton's code and words.
        """
        self.require_allowed()
        self._require_new(name)
        self._system_regions[name] = SystemRegion(name, key, offset, byte_size)

    async def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        """Open a region of GPU memory; see `CudaRegion`. On another thread: starting CUDA takes a while.

        Raises:
            TritonError: with Triton's code and words.
        """
        self.require_allowed()
        self._require_new(name)
        self._opening.add(name)
        try:
            # Not returned: a future would keep it until the garbage collector runs, and with it its name.
            opened: list[CudaRegion] = []
            await asyncio.to_thread(
                lambda: opened.append(self._open_cuda(name, handle, device_id, byte_size))
            )
        finally:
            self._opening.discard(name)
        self._cuda_regions[name] = opened.pop()

    def system_status(self, name: str = "") -> list[RegionStatus]:
        """One region of system memory, or all of them.

        Raises:
            NotFound: there is no such region.
        """
        if name and name in self._cuda_regions:
            raise NotFound(
                f"The region named '{name}' is registered as CUDA shared memory, not system shared memory"
            )
        regions = _wanted({**self._leaving_system, **self._system_regions}, name, "system")
        fields = ("name", "key", "offset", "byte_size")
        return [{field: getattr(region, field) for field in fields} for region in regions]

    def cuda_status(self, name: str = "") -> list[RegionStatus]:
        """One region of GPU memory, or all of them.

        Raises:
            NotFound: there is no such region.
        """
        if name and name in self._system_regions:
            raise NotFound(
                f"The region named '{name}' is registered as system shared memory, not CUDA shared memory"
            )
        regions = _wanted({**self._leaving_cuda, **self._cuda_regions}, name, "cuda")
        fields = ("name", "device_id", "byte_size")
        return [{field: getattr(region, field) for field in fields} for region in regions]

    def unregister_system(self, name: str = "") -> None:
        """Forget one region of system memory, or all of them; one that is not known is no error."""
        self.require_allowed()
        _forget(self._system_regions, self._leaving_system, name)

    def unregister_cuda(self, name: str = "") -> None:
        """Forget one region of GPU memory, or all of them; one that is not known is no error."""
        self.require_allowed()
        _forget(self._cuda_regions, self._leaving_cuda, name)

    def slice(self, name: str, byte_size: int, offset: int = 0) -> RegionSlice:
        """Part of a region.

        Raises:
            NotFound: there is no such region.
            InvalidArg: the part is not all inside of it.
        """
        region = self._system_regions.get(name) or self._cuda_regions.get(name)
        if region is None:
            raise NotFound(f"Unable to find shared memory region: '{name}'")
        if not 0 <= offset < region.byte_size:
            raise InvalidArg(f"Invalid offset for shared memory region: '{name}'")
        if not 0 <= byte_size <= region.byte_size - offset:
            raise InvalidArg(f"Invalid offset + byte size for shared memory region: '{name}'")
        region.check(offset + byte_size)
        return RegionSlice(region, offset, byte_size)

    def require_allowed(self) -> None:
        """Refuse shared memory where the server's options do not allow it.

        Raises:
            Unsupported: clients may not share their memory.
        """
        if not self._is_allowed:
            raise Unsupported(
                "registering and unregistering shared memory is switched off; start the server with "
                "--allow-client-shm=true to let clients share their memory"
            )

    def _require_new(self, name: str) -> None:
        known = (
            self._system_regions,
            self._cuda_regions,
            self._opening,
            self._leaving_system,
            self._leaving_cuda,
        )
        if any(name in names for names in known):
            raise AlreadyExists(f"shared memory region '{name}' already in manager")
        if len(self._system_regions) + len(self._cuda_regions) + len(self._opening) >= self._most:
            raise Unavailable(
                f"shared memory region '{name}' is not registered: {self._most} regions are, and "
                f"--max-shm-regions allows no more"
            )

    def _open_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> CudaRegion:
        if self._cuda is None:
            try:
                self._cuda = self._make_cuda()
            except CudaError as exc:
                raise InvalidArg(f"{REFUSED}: {exc}") from exc
        return CudaRegion(name, handle, device_id, byte_size, self._cuda)


def _wanted(regions: dict[str, R], name: str, kind: str) -> list[R]:
    if name and name not in regions:
        raise NotFound(f"Unable to find {kind} shared memory region: '{name}'")
    return [regions[known] for known in ((name,) if name else sorted(regions))]


def _forget(regions: dict[str, R], leaving: WeakValueDictionary[str, R], name: str) -> None:
    for known in (name,) if name else tuple(regions):
        region = regions.pop(known, None)
        if region is not None:
            leaving[known] = region  # until the last request that uses it lets go of it
