from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.devices.device import DeviceSample, NoDevices
from tritonpy.devices.gpus import Gpus
from tritonpy.devices.nvml import NvmlFinder, numa_node_of, pci_address, visible_devices

GIB = 1 << 30
Make = Callable[..., Any]


def finder(module: Any, environment: dict[str, str] | None = None, deadline_s: float = 30.0) -> NvmlFinder:
    return NvmlFinder(environment or {}, lambda: module, deadline_s)


def test_each_device_is_described(nvml: Make, card: Make) -> None:
    cards = [card("GPU-a"), card("GPU-b", "Old GPU", (6, 1), 8 * GIB, 2 * GIB, "00000001:0A:00.0")]

    first, second = finder(nvml(cards)).find()

    assert (first.id, first.uuid, first.name, first.capability_text) == (0, "GPU-a", "Test GPU", "8.6")
    assert (second.id, second.uuid, second.compute_capability) == (1, "GPU-b", (6, 1))
    assert (second.memory_byte_size, second.free_memory_byte_size) == (8 * GIB, 6 * GIB)
    assert second.pci_bus == "0001:0a:00.0"
    assert second.numa_node is None


def test_ids_are_positions_among_what_is_visible(nvml: Make, card: Make) -> None:
    cards = [card("GPU-a"), card("GPU-b"), card("GPU-c")]

    found = finder(nvml(cards), {"CUDA_VISIBLE_DEVICES": "GPU-c,0"}).find()

    assert [(device.id, device.uuid) for device in found] == [(0, "GPU-c"), (1, "GPU-a")]


@pytest.mark.parametrize("value", ["1", ""])
def test_a_server_for_the_cpu_only_does_not_even_ask(value: str) -> None:
    def load() -> Any:
        raise AssertionError("asked")

    with pytest.raises(NoDevices, match="TRITON_SERVER_CPU_ONLY is set"):
        NvmlFinder({"TRITON_SERVER_CPU_ONLY": value}, load).find()


def test_a_missing_package_is_named() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    with pytest.raises(NoDevices, match="nvidia-ml-py cannot be imported: No module named 'pynvml'"):
        NvmlFinder({}, load).find()


def test_a_missing_driver_and_a_broken_one_are_told_apart(nvml: Make) -> None:
    module = nvml([])

    def fail(error: Exception) -> Callable[[], None]:
        def init() -> None:
            raise error

        return init

    module.nvmlInit = fail(module.NVMLError_LibraryNotFound("NVML Shared Library Not Found"))
    with pytest.raises(NoDevices, match=r"^no NVIDIA driver is installed$"):
        finder(module).find()
    module.nvmlInit = fail(module.NVMLError("Driver/library version mismatch"))
    with pytest.raises(NoDevices, match="the NVIDIA driver said: Driver/library version mismatch"):
        finder(module).find()
    module.nvmlInit = fail(OSError("bad image"))
    with pytest.raises(NoDevices, match="bad image"):
        finder(module).find()


def test_a_driver_that_does_not_answer_is_given_up(nvml: Make) -> None:
    module, end = nvml([]), threading.Event()
    module.nvmlInit = end.wait

    with pytest.raises(NoDevices, match=r"has not answered for 0\.05 seconds"):
        finder(module, deadline_s=0.05).find()

    end.set()


def test_no_device_and_none_that_is_visible_are_told_apart(nvml: Make, card: Make) -> None:
    with pytest.raises(NoDevices, match=r"knows no GPU$"):
        finder(nvml([])).find()
    with pytest.raises(NoDevices, match="knows no GPU that CUDA_VISIBLE_DEVICES=5 leaves visible"):
        finder(nvml([card("GPU-a")]), {"CUDA_VISIBLE_DEVICES": "5"}).find()


def test_a_device_that_fails_leaves_the_others_with_their_ids(
    nvml: Make, card: Make, caplog: pytest.LogCaptureFixture
) -> None:
    cards = [card("GPU-a", failure="GPU is lost"), card("GPU-b")]

    found = finder(nvml(cards)).find()

    assert [(device.id, device.uuid) for device in found] == [(1, "GPU-b")]
    assert "gpu 0 (GPU-a) is not used: the NVIDIA driver said: GPU is lost" in caplog.text


def test_a_device_in_mig_mode_is_used_through_an_instance_that_is_named(
    nvml: Make, card: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = card("GPU-a", is_partitioned=True)
    part = card("MIG-x", "Test GPU MIG 1g", total=4 * GIB, bus="", parent=whole)
    module = nvml([whole, card("GPU-b")], [part])

    assert [device.id for device in finder(module).find()] == [1]
    assert "gpu 0 (GPU-a) is in MIG mode and not used" in caplog.text
    (found,) = finder(module, {"CUDA_VISIBLE_DEVICES": "MIG-x,1"}).find()
    assert (found.id, found.uuid, found.memory_byte_size) == (0, "MIG-x", 4 * GIB)
    assert (found.capability_text, found.pci_bus) == ("8.6", "0000:3b:00.0")


@pytest.mark.parametrize(
    ("environment", "warns"),
    [
        ({}, True),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, True),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}, False),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_VISIBLE_DEVICES": "1"}, False),
    ],
)
def test_it_is_said_where_cuda_may_count_otherwise(
    nvml: Make, card: Make, caplog: pytest.LogCaptureFixture, environment: dict[str, str], warns: bool
) -> None:
    finder(nvml([card("GPU-a", "Slow"), card("GPU-b", "Quick")]), environment).find()

    assert ("CUDA_DEVICE_ORDER=PCI_BUS_ID" in caplog.text) == warns


def test_used_memory_is_asked_for_anew(nvml: Make, card: Make) -> None:
    cards = [card("GPU-a", used=1 * GIB)]
    asked = finder(nvml(cards))
    (device,) = asked.find()

    cards[0].used = 3 * GIB

    assert asked.used_memory_byte_size(device) == 3 * GIB


def test_a_sample_is_in_whole_units(nvml: Make, card: Make) -> None:
    a = card("GPU-a", used=3 * GIB, load=25, milliwatts=50_500, milliwatt_limit=250_000, millijoules=1_500)
    asked = finder(nvml([a]))
    (device,) = asked.find()

    assert asked.sample(device) == DeviceSample(0.25, 16 * GIB, 3 * GIB, 50.5, 250.0, 1.5)


def test_what_a_device_does_not_support_is_unknown(nvml: Make, card: Make) -> None:
    asked = finder(nvml([card("GPU-a", unsupported=("load", "milliwatts", "millijoules"))]))
    (device,) = asked.find()

    assert asked.sample(device) == DeviceSample(None, 16 * GIB, 1 * GIB, None, 0.0, None)


def test_the_memory_node_is_what_linux_says(tmp_path: Path) -> None:
    for bus, node in (("0000:3b:00.0", "1\n"), ("0000:00:02.0", "-1\n"), ("0000:00:03.0", "?")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "numa_node").write_text(node)

    assert numa_node_of(pci_address("00000000:3B:00.0"), tmp_path) == 1
    assert numa_node_of("0000:00:02.0", tmp_path) is None
    assert numa_node_of("0000:00:03.0", tmp_path) is None
    assert numa_node_of("0000:ff:00.0", tmp_path) is None


def test_this_machines_devices_are_found_or_the_reason_told(caplog: pytest.LogCaptureFixture) -> None:
    """With the real library, whatever this machine has."""
    caplog.set_level(logging.INFO)
    gpus = Gpus()

    gpus.discover()

    assert gpus.ids or "no GPUs: " in caplog.text or "is not used" in caplog.text


A, B, C = "GPU-a1b2-1", "GPU-a1c3-2", "GPU-ffff-3"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [A, B, C]),
        ("0", [A]),
        ("2,0", [C, A]),
        (" 1 , 2", [B, C]),
        (B, [B]),
        ("GPU-ff,0", [C, A]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [A]),
        ("0,7,1", [A]),
        ("NoDevFiles", []),
        ("0,,1", [A]),
        ("GPU-a1", []),  # of two
        ("GPU-a1c,GPU-none,0", [B]),
        ("1,1", []),
        (f"0,{A}", []),
        ("99999999999999999999", []),
        ("MIG-7f,0", ["MIG-7f"]),
        ("0,MIG-7f,1", [A, "MIG-7f"]),
    ],
)
def test_a_process_sees_the_devices_that_cuda_would_show_it(setting: str | None, expected: list[str]) -> None:
    assert visible_devices(setting, [A, B, C]) == expected


def test_a_machine_without_devices_shows_none() -> None:
    assert visible_devices(None, []) == visible_devices("0", []) == []
