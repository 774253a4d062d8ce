from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from tritonpy.devices.device import Device, DeviceSample, NoDevices
from tritonpy.devices.gpus import NO_GPUS, Gpus
from tritonpy.errors import ErrorCode, Unavailable

GIB = 1 << 30


class Machine:
    """Finds what it was given."""

    def __init__(self, *devices: Device, used: int = 0, reason: str = "") -> None:
        self.devices = devices
        self.used = used
        self.reason = reason

    def find(self) -> Sequence[Device]:
        if not self.devices:
            raise NoDevices("the shelf is empty")
        return self.devices

    def used_memory_byte_size(self, device: Device) -> int:
        if self.reason:
            raise NoDevices(self.reason)
        return self.used

    def sample(self, device: Device) -> DeviceSample:
        if self.reason:
            raise NoDevices(self.reason)
        return DeviceSample(used_memory_byte_size=self.used)


def gpu(id: int, capability: tuple[int, int] = (8, 0), numa_node: int | None = None) -> Device:
    return Device(id, "Test GPU", f"GPU-{id}", capability, 10 * GIB, 9 * GIB, "0000:3b:00.0", numa_node)


def test_nothing_is_there_before_it_is_looked_for() -> None:
    gpus = Gpus(Machine(gpu(0)))

    assert gpus.ids == [] == NO_GPUS.ids


def test_devices_are_listed_by_id_with_what_they_can(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gpus = Gpus(Machine(gpu(1, (9, 0), 1), gpu(0)))

    gpus.discover()

    assert gpus.ids == [0, 1]
    assert gpus.capabilities() == {0: "8.0", 1: "9.0"}
    assert caplog.messages[0] == (
        "gpu 1: Test GPU, compute capability 9.0, 10240 MiB, 9216 MiB free, 0000:3b:00.0, NUMA node 1"
    )


def test_a_machine_without_devices_says_why_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    Gpus(Machine()).discover()

    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "no GPUs: the shelf is empty")
    ]


def test_devices_below_the_compute_capability_are_left_out_in_tritons_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpus = Gpus(Machine(gpu(0, (5, 2)), gpu(1, (7, 5))), min_compute_capability=7.5)

    gpus.discover()

    assert gpus.ids == [1]
    assert caplog.messages == [
        "gpu 0 has compute capability '5.2' which is less than the minimum supported of '7.500000'"
    ]


def test_a_load_beyond_the_limit_is_refused_in_tritons_words() -> None:
    machine = Machine(gpu(0), gpu(1), used=6 * GIB)
    gpus = Gpus(machine, load_limits=[(0, 0.5)])
    gpus.discover()

    with pytest.raises(Unavailable) as refusal:
        gpus.check_load("m_0_0", 0)
    gpus.check_load("m_0_0", 1)  # has no limit
    machine.used = 5 * GIB
    gpus.check_load("m_0_0", 0)

    assert refusal.value.code is ErrorCode.UNAVAILABLE
    assert refusal.value.message.startswith(
        "can not create model 'm_0_0': memory limit set for GPU 0 has exceeded, model loading is rejected."
    )
    assert "6144 MiB of 10240 MiB are used, --model-load-gpu-limit=0:0.5 allows 5120" in refusal.value.message


def test_a_limit_that_cannot_be_watched_refuses_rather_than_guesses() -> None:
    gpus = Gpus(Machine(gpu(0), reason="GPU is lost"), load_limits=[(0, 0.5)])
    gpus.discover()

    with pytest.raises(
        Unavailable, match=r"cannot be looked at, which --model-load-gpu-limit=0:0\.5 asks for: GPU"
    ):
        gpus.check_load("m_0_0", 0)


def test_a_limit_for_a_device_that_is_not_there_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    gpus = Gpus(Machine(gpu(0)), load_limits=[(3, 0.5)])

    gpus.discover()

    assert "--model-load-gpu-limit=3:0.5: there is no such GPU" in caplog.text
