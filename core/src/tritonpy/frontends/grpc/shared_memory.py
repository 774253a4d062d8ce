"""The shared memory extensions over gRPC: registering regions, showing and forgetting them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from google.protobuf.message import Message

from tritonpy import protos
from tritonpy.shared_memory.registry import SharedMemoryRegions

Call: TypeAlias = "Callable[[Message], Message | Awaitable[Message]]"


class SharedMemoryCalls:
    """The calls whose names begin with `SystemSharedMemory` and `CudaSharedMemory`."""

    def __init__(self, regions: SharedMemoryRegions) -> None:
        self._regions = regions

    def by_name(self) -> dict[str, Call]:
        """The calls by their names."""
        return {
            name: cast("Call", call)  # each with its own request type
            for name, call in {
                "SystemSharedMemoryStatus": self._system_status,
                "SystemSharedMemoryRegister": self._register_system,
                "SystemSharedMemoryUnregister": self._unregister_system,
                "CudaSharedMemoryStatus": self._cuda_status,
                "CudaSharedMemoryRegister": self._register_cuda,
                "CudaSharedMemoryUnregister": self._unregister_cuda,
            }.items()
        }

    def _system_status(self, request: protos.SystemSharedMemoryStatusRequest) -> Message:
        response = protos.SystemSharedMemoryStatusResponse
        regions = self._regions.system_status(request.name)
        return response(regions={region["name"]: response.RegionStatus(**region) for region in regions})

    def _register_system(self, request: protos.SystemSharedMemoryRegisterRequest) -> Message:
        self._regions.register_system(request.name, request.key, request.offset, request.byte_size)
        return protos.SystemSharedMemoryRegisterResponse()

    def _unregister_system(self, request: protos.SystemSharedMemoryUnregisterRequest) -> Message:
        self._regions.unregister_system(request.name)
        return protos.SystemSharedMemoryUnregisterResponse()

    def _cuda_status(self, request: protos.CudaSharedMemoryStatusRequest) -> Message:
        response = protos.CudaSharedMemoryStatusResponse
        regions = self._regions.cuda_status(request.name)
        return response(regions={region["name"]: response.RegionStatus(**region) for region in regions})

    async def _register_cuda(self, request: protos.CudaSharedMemoryRegisterRequest) -> Message:
        await self._regions.register_cuda(
            request.name, request.raw_handle, request.device_id, request.byte_size
        )
        return protos.CudaSharedMemoryRegisterResponse()

    def _unregister_cuda(self, request: protos.CudaSharedMemoryUnregisterRequest) -> Message:
        self._regions.unregister_cuda(request.name)
        return protos.CudaSharedMemoryUnregisterResponse()
