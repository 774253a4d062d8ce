from __future__ import annotations

from typing import Any

import pytest
from tritonpy.errors import AlreadyExists, ErrorCode, NotFound, TritonError
from tritonpy.shared_memory.cuda import CudaError
from tritonpy.shared_memory.registry import SharedMemoryRegions

HANDLE = bytes(64)


class Device:
    """A CUDA runtime whose memory is all zeros; stands in for `CudaPython`."""

    def open_handle(self, handle: bytes, device_id: int) -> int:
        return 4096

    def close_handle(self, address: int, device_id: int) -> None:
        pass

    def allocation_byte_size(self, address: int) -> int:
        return 1024

    def copy_to_host(self, target: int, address: int, byte_size: int, device_id: int) -> None:
        pass

    def copy_to_device(self, address: int, source: int, byte_size: int, device_id: int) -> None:
        pass


@pytest.fixture
def regions() -> SharedMemoryRegions:
    return SharedMemoryRegions(is_allowed=True, make_cuda=Device)


def fails(code: ErrorCode, text: str) -> Any:
    class Expectation:
        def __enter__(self) -> None:
            pass

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            assert isinstance(error, TritonError), error
            assert (error.code, error.message) == (code, text)
            return True

    return Expectation()


def test_status_shows_regions_by_name(regions: SharedMemoryRegions, shared_file: Any) -> None:
    file = shared_file(64)
    for name in ("b", "a"):
        regions.register_system(name, file.key, 0, 32)

    region = {"key": file.key, "offset": 0, "byte_size": 32}
    assert regions.system_status() == [{"name": "a", **region}, {"name": "b", **region}]
    assert regions.system_status("b") == [{"name": "b", **region}]


async def test_status_of_cuda_regions_shows_their_devices(regions: SharedMemoryRegions) -> None:
    await regions.register_cuda("c", HANDLE, 2, 64)

    assert regions.cuda_status() == [{"name": "c", "device_id": 2, "byte_size": 64}]
    assert regions.cuda_status("c") == regions.cuda_status()


async def test_a_name_is_taken_by_either_kind(regions: SharedMemoryRegions, shared_file: Any) -> None:
    file = shared_file(64)
    regions.register_system("s", file.key, 0, 64)
    await regions.register_cuda("c", HANDLE, 0, 64)

    for name in ("s", "c"):
        taken = fails(ErrorCode.ALREADY_EXISTS, f"shared memory region '{name}' already in manager")
        with taken:
            regions.register_system(name, file.key, 0, 64)
        with taken:
            await regions.register_cuda(name, HANDLE, 0, 64)


async def test_the_other_kind_of_region_is_told_from_none(
    regions: SharedMemoryRegions, shared_file: Any
) -> None:
    regions.register_system("s", shared_file(64).key, 0, 64)
    await regions.register_cuda("c", HANDLE, 0, 64)

    with fails(
        ErrorCode.NOT_FOUND,
        "The region named 'c' is registered as CUDA shared memory, not system shared memory",
    ):
        regions.system_status("c")
    with fails(
        ErrorCode.NOT_FOUND,
        "The region named 's' is registered as system shared memory, not CUDA shared memory",
    ):
        regions.cuda_status("s")
    with fails(ErrorCode.NOT_FOUND, "Unable to find system shared memory region: 'x'"):
        regions.system_status("x")
    with fails(ErrorCode.NOT_FOUND, "Unable to find cuda shared memory region: 'x'"):
        regions.cuda_status("x")
    with fails(ErrorCode.NOT_FOUND, "Unable to find shared memory region: 'x'"):
        regions.slice("x", 1)


async def test_unregistering_takes_its_own_kind_only(regions: SharedMemoryRegions, shared_file: Any) -> None:
    regions.register_system("s", shared_file(64).key, 0, 64)
    await regions.register_cuda("c", HANDLE, 0, 64)

    regions.unregister_system("c")
    regions.unregister_cuda("s")
    regions.unregister_cuda("nobody")
    assert len(regions.system_status()) == len(regions.cuda_status()) == 1

    regions.unregister_system()
    assert (regions.system_status(), len(regions.cuda_status())) == ([], 1)
    regions.unregister_cuda("c")
    assert regions.cuda_status() == []


def test_a_slice_outlives_its_registration(regions: SharedMemoryRegions, shared_file: Any) -> None:
    file = shared_file(64, b"input")
    regions.register_system("s", file.key, 0, 64)
    part = regions.slice("s", 5)

    regions.unregister_system("s")
    part.write("OUTPUT0", b"I")

    assert bytes(part.host_view()) == b"Input"
    assert file.content.startswith(b"Input")


def test_a_region_that_is_used_stays_listed_until_the_last_use_ends(
    regions: SharedMemoryRegions, shared_file: Any
) -> None:
    file = shared_file(64, b"input")
    regions.register_system("s", file.key, 0, 64)
    first, last = regions.slice("s", 5), regions.slice("s", 6)

    regions.unregister_system()
    del first

    assert [status["name"] for status in regions.system_status()] == ["s"]
    assert regions.system_status("s")[0]["key"] == file.key
    with pytest.raises(AlreadyExists):
        regions.register_system("s", file.key, 0, 64)
    with pytest.raises(NotFound):
        regions.slice("s", 5)
    regions.unregister_system("s")
    del last
    assert regions.system_status() == []
    regions.register_system("s", file.key, 0, 64)


@pytest.mark.parametrize(
    ("byte_size", "offset", "text"),
    [
        (65, 0, "Invalid offset + byte size for shared memory region: 's'"),
        (1, 64, "Invalid offset for shared memory region: 's'"),
        (0, 64, "Invalid offset for shared memory region: 's'"),
        (1, -1, "Invalid offset for shared memory region: 's'"),
        (-1, 0, "Invalid offset + byte size for shared memory region: 's'"),
        (61, 4, "Invalid offset + byte size for shared memory region: 's'"),
        (2**64 - 1, 2, "Invalid offset + byte size for shared memory region: 's'"),
    ],
)
def test_a_slice_is_inside_of_its_region(
    regions: SharedMemoryRegions, shared_file: Any, byte_size: int, offset: int, text: str
) -> None:
    regions.register_system("s", shared_file(64).key, 0, 64)

    with fails(ErrorCode.INVALID_ARG, text):
        regions.slice("s", byte_size, offset)


def test_a_slice_may_be_all_or_nothing_of_its_region(regions: SharedMemoryRegions, shared_file: Any) -> None:
    regions.register_system("s", shared_file(64).key, 0, 64)

    assert len(regions.slice("s", 64).host_view()) == 64
    assert len(regions.slice("s", 0, 63).host_view()) == 0


async def test_clients_register_nothing_unless_they_are_allowed_to(shared_file: Any) -> None:
    regions = SharedMemoryRegions(is_allowed=False)
    calls = [
        lambda: regions.register_system("s", shared_file(64).key, 0, 64),
        regions.unregister_system,
        regions.unregister_cuda,
    ]

    for call in calls:
        with pytest.raises(TritonError, match="--allow-client-shm=true") as caught:
            call()
        assert caught.value.code == ErrorCode.UNSUPPORTED
    with pytest.raises(TritonError, match="--allow-client-shm=true"):
        await regions.register_cuda("c", HANDLE, 0, 64)
    assert regions.system_status() == regions.cuda_status() == []


async def test_without_cuda_a_region_is_refused_in_tritons_words() -> None:
    def no_cuda() -> Device:
        raise CudaError("there is no driver")

    regions = SharedMemoryRegions(is_allowed=True, make_cuda=no_cuda)

    with fails(
        ErrorCode.INVALID_ARG, "failed to register shared memory region: invalid args: there is no driver"
    ):
        await regions.register_cuda("c", HANDLE, 0, 64)
    with fails(ErrorCode.NOT_FOUND, "Unable to find cuda shared memory region: 'c'"):
        regions.cuda_status("c")


def test_what_its_client_has_cut_is_refused_when_it_is_asked_for(
    regions: SharedMemoryRegions, shared_file: Any
) -> None:
    file = shared_file(64)
    regions.register_system("s", file.key, 0, 64)
    file.resize(32)

    assert len(regions.slice("s", 32).host_view()) == 32
    with pytest.raises(TritonError, match="cut to 32 bytes since it was registered, 33 are needed") as caught:
        regions.slice("s", 1, 32)
    assert caught.value.code == ErrorCode.INVALID_ARG


async def test_no_more_regions_than_the_limit_are_registered(shared_file: Any) -> None:
    regions = SharedMemoryRegions(is_allowed=True, make_cuda=Device, most=2)
    file = shared_file(64)
    regions.register_system("a", file.key, 0, 32)
    await regions.register_cuda("b", HANDLE, 0, 8)

    text = "shared memory region 'c' is not registered: 2 regions are, and --max-shm-regions allows no more"
    with fails(ErrorCode.UNAVAILABLE, text):
        regions.register_system("c", file.key, 0, 32)
    with fails(ErrorCode.UNAVAILABLE, text):
        await regions.register_cuda("c", HANDLE, 0, 8)
    regions.unregister_system("a")
    regions.register_system("c", file.key, 0, 32)
