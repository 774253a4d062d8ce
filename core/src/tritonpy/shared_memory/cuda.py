"""Regions of GPU memory, which clients share by CUDA IPC handles.

The CUDA runtime is reached through cuda-python, which comes with the extra `tritonpy[cuda]` and is imported
when the first region is registered.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any

import numpy as np

from tritonpy.buffers import MemoryType
from tritonpy.errors import Internal, InvalidArg, TritonError

_log = logging.getLogger("tritonpy.shared_memory")

HANDLE_BYTE_SIZE = 64
"""Size of a `cudaIpcMemHandle_t`."""

_HIGHEST_DEVICE_ID = 2**31 - 1

REFUSED = "failed to register shared memory region: invalid args"


class CudaError(Exception):
    """An error of the CUDA runtime."""


class CudaPython:
    """The few calls of CUDA that are needed, through cuda-python. Addresses are on a device.

    Raises:
        CudaError: it is not installed, or cannot be loaded; also from every method.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver, runtime
        except Exception as exc:  # besides ImportError, any error of a broken CUDA installation
            raise CudaError(
                f"CUDA cannot be used: {exc}; `pip install tritonpy[cuda]` brings what is needed beside the "
                f"driver"
            ) from exc
        self._driver = driver
        self._runtime = runtime

    def open_handle(self, handle: bytes, device_id: int) -> int:
        """Map memory of another process; returns its address here."""
        runtime = self._runtime
        self._use(device_id)
        ipc_handle = runtime.cudaIpcMemHandle_t()
        # The attribute `reserved` that held the bytes is gone since cuda-python 13.
        ctypes.memmove(int(ipc_handle.getPtr()), handle, HANDLE_BYTE_SIZE)
        flags = runtime.cudaIpcMemLazyEnablePeerAccess
        return int(self._done(runtime.cudaIpcOpenMemHandle(ipc_handle, flags)))

    def close_handle(self, address: int, device_id: int) -> None:
        """Unmap it."""
        self._use(device_id)
        self._done(self._runtime.cudaIpcCloseMemHandle(address))

    def allocation_byte_size(self, address: int) -> int:
        """Size of the memory from an address that a handle gave to its end."""
        error, base, byte_size = self._driver.cuMemGetAddressRange(address)
        if int(error):
            raise CudaError(f"cuMemGetAddressRange: {error.name}")
        return int(byte_size) - (address - int(base))

    def copy_to_host(self, target: int, address: int, byte_size: int, device_id: int) -> None:
        """Copy from the device to an address in host memory; returns when it is done."""
        self._copy(target, address, byte_size, device_id, "cudaMemcpyDeviceToHost")

    def copy_to_device(self, address: int, source: int, byte_size: int, device_id: int) -> None:
        """Copy from an address in host memory to the device; returns when it is done."""
        self._copy(address, source, byte_size, device_id, "cudaMemcpyHostToDevice")

    def _copy(self, target: int, source: int, byte_size: int, device_id: int, kind: str) -> None:
        runtime = self._runtime
        self._use(device_id)
        self._done(runtime.cudaMemcpy(target, source, byte_size, getattr(runtime.cudaMemcpyKind, kind)))
        # A copy from pageable host memory may return once it is staged; the client reads when it is answered.
        self._done(runtime.cudaStreamSynchronize(0))

    def _use(self, device_id: int) -> None:
        """Make a device the calling thread's."""
        self._done(self._runtime.cudaSetDevice(device_id))

    def _done(self, result: tuple[Any, ...]) -> Any:  # Any: cuda-python has no types
        error, *values = result
        if int(error):
            _, text = self._runtime.cudaGetErrorString(error)
            raise CudaError(text.decode() if isinstance(text, bytes) else str(text))
        return values[0] if values else None


class CudaRegion:
    """Memory of a client on a device; satisfies `Region`. It is unmapped with its last slice.

    Args:
        name: what the client calls it.
        handle: the client's `cudaIpcMemHandle_t`.
        device_id: the device it lies on.
        byte_size: how long it is.
        runtime: does the work.

    Raises:
        InvalidArg: with Triton's words, and then what is wrong.
    """

    memory_type: MemoryType = MemoryType.GPU
    file: tuple[int, int] | None = None

    def __init__(self, name: str, handle: bytes, device_id: int, byte_size: int, runtime: CudaPython) -> None:
        self.name = name
        self.device_id = device_id
        self.byte_size = byte_size
        self._runtime = runtime
        self.address = 0
        if len(handle) != HANDLE_BYTE_SIZE:
            raise InvalidArg(
                f"{REFUSED}: a raw handle has {HANDLE_BYTE_SIZE} bytes, this one has {len(handle)}"
            )
        if not 0 <= device_id <= _HIGHEST_DEVICE_ID:
            raise InvalidArg(f"{REFUSED}: there is no device {device_id}")
        try:
            self.address = runtime.open_handle(handle, device_id)
            there = runtime.allocation_byte_size(self.address)
        except CudaError as exc:
            raise InvalidArg(f"{REFUSED}: {exc}") from exc
        if byte_size > there:
            raise InvalidArg(
                f"failed to register shared memory region '{name}': invalid args: byte_size {byte_size} "
                f"leads beyond the {there} bytes of the handle"
            )

    def check(self, end: int) -> None:
        """Do nothing: memory that a handle keeps open stays as large as it was."""

    def read_into(self, offset: int, target: memoryview) -> None:
        room = np.frombuffer(target, np.uint8)
        if room.size:
            try:
                self._runtime.copy_to_host(room.ctypes.data, self.address + offset, room.size, self.device_id)
            except CudaError as exc:
                raise self._failure(exc) from exc

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        source = np.frombuffer(data, np.uint8)
        if source.size:
            try:
                self._runtime.copy_to_device(
                    self.address + offset, source.ctypes.data, source.size, self.device_id
                )
            except CudaError as exc:
                raise self._failure(exc) from exc

    def _failure(self, error: CudaError) -> TritonError:
        return Internal(f"cuda shared memory region '{self.name}' on device {self.device_id}: {error}")

    def __del__(self) -> None:
        if self.address:
            try:
                self._runtime.close_handle(self.address, self.device_id)
            except CudaError as exc:
                _log.error("failed to close CUDA IPC handle of region '%s': %s", self.name, exc)
