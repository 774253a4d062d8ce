from __future__ import annotations

import gc
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, TritonError
from tritonpy.shared_memory import system
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.shared_memory.system import SystemRegion

PAGE = mmap.ALLOCATIONGRANULARITY


def refused(code: ErrorCode, text: str, *arguments: Any) -> None:
    with pytest.raises(TritonError) as caught:
        SystemRegion("r", *arguments)

    assert caught.value.code == code
    assert caught.value.message.startswith(text), caught.value.message


def read(region: SystemRegion, offset: int, byte_size: int) -> bytes:
    return bytes(RegionSlice(region, offset, byte_size).host_view())


def open_count(path: Path) -> int:
    """How many descriptors of this process lead to a shared memory object."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            found += os.readlink(f"/proc/self/fd/{name}") == str(path)
    return found


def test_what_was_read_once_stays_as_it_was(shared_file: Any) -> None:
    file = shared_file(64, b"before")
    part = RegionSlice(SystemRegion("r", file.key, 0, 64), 0, 6)
    view = part.host_view()

    file.write(b"after!")
    file.resize(0)
    copy = bytearray(6)
    part.read_into(memoryview(copy))

    assert bytes(view) == bytes(part.host_view()) == bytes(copy) == b"before"
    assert view.readonly


def test_a_part_can_be_read_from_its_file_by_others(shared_file: Any) -> None:
    file = shared_file(2 * PAGE, b"")
    file.write(b"." * (PAGE + 8) + b"tensor")
    part = RegionSlice(SystemRegion("r", file.key, PAGE, 64), 8, 6)

    assert part.address == 0
    assert part.file is not None
    descriptor, position = part.file
    assert os.pread(descriptor, part.byte_size, position) == b"tensor"


def test_what_was_not_read_yet_is_what_the_client_wrote_last(shared_file: Any) -> None:
    file = shared_file(64, b"before")
    part = RegionSlice(SystemRegion("r", file.key, 0, 64), 0, 6)

    file.write(b"after!")
    copy = bytearray(6)
    part.read_into(memoryview(copy))

    assert bytes(copy) == b"after!"


def test_a_write_lands_in_the_clients_memory_and_nowhere_else(shared_file: Any) -> None:
    file = shared_file(16, b"." * 16)

    SystemRegion("r", file.key, 0, 16).write(4, b"abcd")

    assert file.content == b"....abcd........"


def test_a_region_begins_at_its_offset(shared_file: Any) -> None:
    file = shared_file(2 * PAGE)
    file.write(b"\0" * PAGE + b"second page")
    region = SystemRegion("r", file.key, PAGE, 16)

    region.write(7, b"PAGE")

    assert read(region, 0, 11) == b"second PAGE"
    assert file.content[PAGE : PAGE + 11] == b"second PAGE"


def test_a_key_is_accepted_without_its_slash(shared_file: Any) -> None:
    file = shared_file(8, b"12345678")

    assert read(SystemRegion("r", file.key[1:], 0, 8), 0, 8) == b"12345678"
    assert read(SystemRegion("r", "//" + file.key, 0, 8), 0, 8) == b"12345678"


@pytest.mark.parametrize(
    "key", ["", "/", "///", "/a/b", "a/b", "..", "/..", "/../etc/passwd", ".", "/x\0y", "/" + "x" * 256]
)
def test_a_key_leads_to_no_other_place(key: str) -> None:
    refused(
        ErrorCode.INVALID_ARG,
        f"cannot register shared memory region 'r' - invalid shm key '{key}': expected a name",
        key,
        0,
        8,
    )


@pytest.mark.parametrize("slash", ["", "/"])
def test_regions_between_triton_and_its_python_models_are_reserved(slash: str) -> None:
    key = f"{slash}triton_python_backend_shm_region_0"

    refused(
        ErrorCode.INVALID_ARG,
        f"cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix "
        f"'triton_python_backend_shm_region_'",
        key,
        0,
        8,
    )


def test_a_key_that_names_nothing_says_so() -> None:
    refused(
        ErrorCode.INTERNAL,
        "Unable to open shared memory region: '/tritonpy_nope': No such file or directory",
        "/tritonpy_nope",
        0,
        8,
    )


def test_what_is_no_memory_is_refused(shared_file: Any) -> None:
    file = shared_file(8)
    file.path.unlink()
    os.mkfifo(file.path)

    refused(ErrorCode.INTERNAL, f"Invalid shared memory region: '{file.key}'", file.key, 0, 8)


@pytest.mark.parametrize(
    ("offset", "byte_size", "reason"),
    [
        (0, 2 * PAGE + 1, "invalid args: offset 0 and byte_size"),
        (PAGE, PAGE + 1, "invalid args: offset"),
        (0, 2**64 - 1, "invalid args: offset"),
        (2**64 - PAGE, PAGE, "invalid args: offset"),
        (0, 0, "unable to process address spaceInvalid argument: byte_size is 0"),
        (64, 64, "unable to process address spaceInvalid argument: offset 64 is not a multiple of"),
    ],
)
def test_a_region_outside_of_its_object_is_refused(
    shared_file: Any, offset: int, byte_size: int, reason: str
) -> None:
    file = shared_file(2 * PAGE)

    refused(
        ErrorCode.INVALID_ARG,
        f"failed to register shared memory region 'r': {reason}",
        file.key,
        offset,
        byte_size,
    )


def test_an_object_that_was_cut_is_refused_and_kills_nobody(shared_file: Any) -> None:
    file = shared_file(4 * PAGE, b"x" * 8)
    region = SystemRegion("r", file.key, PAGE, 3 * PAGE)
    part = RegionSlice(region, 0, 3 * PAGE)
    file.resize(2 * PAGE)

    with pytest.raises(TritonError, match=f"cut to {PAGE} bytes since it was registered, {3 * PAGE} are"):
        part.host_view()
    with pytest.raises(TritonError, match="cut to"):
        part.write("OUTPUT0", bytes(2 * PAGE))
    file.resize(0)
    with pytest.raises(TritonError, match="cut to 0 bytes"):
        RegionSlice(region, 0, 4).host_view()


def test_what_is_still_there_of_a_cut_object_can_be_used(shared_file: Any) -> None:
    file = shared_file(2 * PAGE, b"abcd")
    region = SystemRegion("r", file.key, 0, 2 * PAGE)
    file.resize(PAGE)

    region.write(0, b"A")

    assert read(region, 0, 4) == b"Abcd"


def test_a_region_is_open_as_long_as_a_part_of_it_is_needed(shared_file: Any) -> None:
    file = shared_file(64, b"held")
    region = SystemRegion("r", file.key, 0, 64)
    part = RegionSlice(region, 0, 4)

    del region
    gc.collect()
    assert open_count(file.path) == 1
    view = part.host_view()

    del part
    gc.collect()
    assert open_count(file.path) == 0
    assert bytes(view) == b"held"
    assert file.path.exists()


def test_no_descriptor_is_left_behind(shared_file: Any) -> None:
    file = shared_file(64)

    for _ in range(50):
        SystemRegion("r", file.key, 0, 64)
        with pytest.raises(TritonError):
            SystemRegion("r", file.key, 0, 65)
    gc.collect()

    assert open_count(file.path) == 0


def test_an_output_that_is_too_large_is_refused_in_tritons_words(shared_file: Any) -> None:
    region = SystemRegion("r", shared_file(64).key, 0, 64)

    with pytest.raises(TritonError) as caught:
        RegionSlice(region, 0, 12).write("OUTPUT0", bytes(16))

    assert caught.value.code == ErrorCode.INTERNAL
    assert caught.value.message == (
        "shared memory size specified with the request for output 'OUTPUT0' (12 bytes) should be at least "
        "16 bytes to hold the results"
    )


@pytest.mark.parametrize(("platform", "name"), [("win32", "Windows"), ("darwin", "darwin")])
def test_other_systems_are_told_that_it_is_not_for_them(
    monkeypatch: pytest.MonkeyPatch, platform: str, name: str
) -> None:
    monkeypatch.setattr(system.sys, "platform", platform)

    refused(ErrorCode.UNSUPPORTED, f"Shared memory feature is currently not supported on {name}", "/x", 0, 8)
