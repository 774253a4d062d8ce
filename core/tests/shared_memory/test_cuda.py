"""CUDA regions against a stand-in for cuda-python: what it is asked, and what becomes of its answers."""

from __future__ import annotations

import ctypes
import gc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonpy.buffers import MemoryType
from tritonpy.errors import ErrorCode, TritonError
from tritonpy.shared_memory.cuda import CudaError, CudaPython, CudaRegion
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.tensor import Tensor

HANDLE = bytes(range(64))


class Handle:
    """Like `cudaIpcMemHandle_t` of cuda-python 13: nothing but an address."""

    def __init__(self) -> None:
        self.content = (ctypes.c_char * 64)()

    def getPtr(self) -> int:
        return ctypes.addressof(self.content)


class DriverResult(int):
    """Like `CUresult`."""

    name = "CUDA_ERROR_INVALID_VALUE"


class FakeCuda:
    """The functions of cuda-python that are used, over a "device" that is an array of this process."""

    def __init__(self, byte_size: int = 256, errors: dict[str, int] | None = None) -> None:
        self.memory = np.zeros(byte_size, np.uint8)
        self.errors = errors or {}
        self.calls: list[tuple[Any, ...]] = []
        self.cudaIpcMemHandle_t = Handle
        self.cudaIpcMemLazyEnablePeerAccess = 1
        self.cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    @property
    def address(self) -> int:
        return self.memory.ctypes.data

    def _result(self, name: str, *values: Any) -> tuple[Any, ...]:
        return (self.errors.get(name, 0), *values)

    def cudaSetDevice(self, device: int) -> tuple[Any, ...]:
        self.calls.append(("cudaSetDevice", device))
        return self._result("cudaSetDevice")

    def cudaIpcOpenMemHandle(self, handle: Handle, flags: int) -> tuple[Any, ...]:
        self.calls.append(("cudaIpcOpenMemHandle", handle.content.raw, flags))
        return self._result("cudaIpcOpenMemHandle", self.address)

    def cudaIpcCloseMemHandle(self, address: int) -> tuple[Any, ...]:
        self.calls.append(("cudaIpcCloseMemHandle", address))
        return self._result("cudaIpcCloseMemHandle")

    def cudaMemcpy(self, target: int, source: int, byte_size: int, kind: int) -> tuple[Any, ...]:
        self.calls.append(("cudaMemcpy", kind, byte_size))
        ctypes.memmove(target, source, byte_size)
        return self._result("cudaMemcpy")

    def cudaStreamSynchronize(self, stream: int) -> tuple[Any, ...]:
        self.calls.append(("cudaStreamSynchronize", stream))
        return self._result("cudaStreamSynchronize")

    def cudaGetErrorString(self, error: int) -> tuple[Any, ...]:
        return 0, f"error {error}".encode()

    def cuMemGetAddressRange(self, address: int) -> tuple[Any, ...]:
        error = DriverResult(self.errors.get("cuMemGetAddressRange", 0))
        return error, self.address, self.memory.nbytes


@pytest.fixture
def make_cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**options: Any) -> FakeCuda:
        fake = FakeCuda(**options)
        package = ModuleType("cuda.bindings")
        package.runtime = package.driver = fake  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bindings", package)
        return fake

    return make


def test_a_region_is_opened_by_the_clients_handle_on_its_device(make_cuda: Any) -> None:
    fake = make_cuda()

    region = CudaRegion("c", HANDLE, 3, 128, CudaPython())

    assert fake.calls[:2] == [("cudaSetDevice", 3), ("cudaIpcOpenMemHandle", HANDLE, 1)]
    assert (region.memory_type, region.device_id, region.byte_size) == (MemoryType.GPU, 3, 128)


def test_an_input_is_a_location_that_is_copied_to_the_host_when_it_is_opened(make_cuda: Any) -> None:
    fake = make_cuda()
    fake.memory[16:32] = np.arange(4, dtype=np.float32).view(np.uint8)
    part = RegionSlice(CudaRegion("c", HANDLE, 0, 128, CudaPython()), 16, 16)

    tensor = Tensor("INPUT0", "FP32", (4,), part)

    assert (tensor.memory_type, tensor.byte_size) == (MemoryType.GPU, 16)
    assert ("cudaMemcpy", 2, 16) not in fake.calls
    assert tensor.numpy().tolist() == [0, 1, 2, 3]
    assert ("cudaMemcpy", 2, 16) in fake.calls


def test_a_part_lies_on_the_device_behind_where_its_region_begins(make_cuda: Any) -> None:
    make_cuda()
    region = CudaRegion("c", HANDLE, 0, 128, CudaPython())

    part = RegionSlice(region, 16, 16)

    assert region.address != 0
    assert (part.address, part.file) == (region.address + 16, None)


def test_an_output_is_on_the_device_before_the_write_returns(make_cuda: Any) -> None:
    fake = make_cuda()
    part = RegionSlice(CudaRegion("c", HANDLE, 1, 128, CudaPython()), 8, 16)
    fake.calls.clear()

    part.write("OUTPUT0", memoryview(b"abcdefgh"))

    assert fake.calls == [("cudaSetDevice", 1), ("cudaMemcpy", 1, 8), ("cudaStreamSynchronize", 0)]
    assert bytes(fake.memory[8:16]) == b"abcdefgh"


def test_an_empty_output_needs_no_copy(make_cuda: Any) -> None:
    fake = make_cuda()
    part = RegionSlice(CudaRegion("c", HANDLE, 0, 128, CudaPython()), 0, 16)
    fake.calls.clear()

    part.write("OUTPUT0", b"")

    assert fake.calls == []


def test_the_handle_is_closed_with_the_last_slice(make_cuda: Any) -> None:
    fake = make_cuda()
    region = CudaRegion("c", HANDLE, 2, 128, CudaPython())
    part = RegionSlice(region, 0, 16)
    closing = ("cudaIpcCloseMemHandle", fake.address)

    del region
    gc.collect()
    assert closing not in fake.calls
    del part
    gc.collect()

    assert fake.calls[-2:] == [("cudaSetDevice", 2), closing]


@pytest.mark.parametrize("name", ["cudaSetDevice", "cudaIpcOpenMemHandle"])
def test_what_cuda_refuses_is_refused_in_tritons_words(make_cuda: Any, name: str) -> None:
    make_cuda(errors={name: 7})

    with pytest.raises(TritonError) as caught:
        CudaRegion("c", HANDLE, 0, 128, CudaPython())

    assert caught.value.code == ErrorCode.INVALID_ARG
    assert caught.value.message == "failed to register shared memory region: invalid args: error 7"


def test_a_handle_whose_size_cannot_be_told_is_refused_and_closed(make_cuda: Any) -> None:
    fake = make_cuda(errors={"cuMemGetAddressRange": 1})

    with pytest.raises(TritonError, match="invalid args: cuMemGetAddressRange: CUDA_ERROR_INVALID_VALUE"):
        CudaRegion("c", HANDLE, 0, 128, CudaPython())
    gc.collect()

    assert fake.calls[-1] == ("cudaIpcCloseMemHandle", fake.address)


def test_a_region_is_no_larger_than_the_memory_behind_its_handle(make_cuda: Any) -> None:
    make_cuda()

    with pytest.raises(TritonError, match="'c': invalid args: byte_size 257 leads beyond the 256 bytes"):
        CudaRegion("c", HANDLE, 0, 257, CudaPython())


@pytest.mark.parametrize(
    ("handle", "device_id", "reason"),
    [
        (b"x" * 63, 0, "a raw handle has 64 bytes, this one has 63"),
        (HANDLE, -1, "there is no device -1"),
        (HANDLE, 2**40, "there is no device 1099511627776"),
    ],
)
def test_what_cuda_need_not_be_asked_about_is_refused_before(
    make_cuda: Any, handle: bytes, device_id: int, reason: str
) -> None:
    fake = make_cuda()

    with pytest.raises(TritonError, match=f"shared memory region: invalid args: {reason}"):
        CudaRegion("c", handle, device_id, 8, CudaPython())

    assert fake.calls == []


def test_a_failing_copy_names_region_and_device(make_cuda: Any) -> None:
    fake = make_cuda()
    part = RegionSlice(CudaRegion("c", HANDLE, 1, 128, CudaPython()), 0, 16)
    fake.errors["cudaMemcpy"] = 77

    with pytest.raises(TritonError, match="cuda shared memory region 'c' on device 1: error 77") as read:
        part.host_view()
    with pytest.raises(TritonError, match="cuda shared memory region 'c' on device 1: error 77"):
        part.write("OUTPUT0", b"1234")

    assert read.value.code == ErrorCode.INTERNAL


def test_without_cuda_python_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)

    with pytest.raises(CudaError, match=r"pip install tritonpy\[cuda\]"):
        CudaPython()
