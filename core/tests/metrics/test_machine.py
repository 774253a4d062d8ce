"""Samples of processors, memory and GPUs, from stand-ins for the kernel and the driver."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tritonpy.devices.device import Device, DeviceSample, NoDevices
from tritonpy.devices.gpus import Gpus
from tritonpy.metrics.exposition import render
from tritonpy.metrics.machine import CpuSample, CpuSampler, MachineMetrics, machine_metrics
from tritonpy.options import ServerOptions
from tritonpy_sdk.testing import until

MEMINFO = "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    400 kB\nHugePages_Total:  0\n"


class Proc:
    """What Linux would show."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ticks(*[0] * 10)
        (path / "meminfo").write_text(MEMINFO)

    def ticks(self, *counts: int) -> None:
        (self.path / "stat").write_text(f"cpu  {' '.join(map(str, counts))}\ncpu0 1 2 3\n")


class Cards:
    """Stand-in GPUs; satisfies `DeviceFinder`."""

    def __init__(self, *samples: DeviceSample) -> None:
        self.samples = list(samples)
        self.failure: dict[int, str] = {}
        self.asked = 0

    def find(self) -> Sequence[Device]:
        return [
            Device(id, "Test GPU", f"GPU-{id}", (8, 6), 100, 100, "0000:3b:00.0")
            for id in range(len(self.samples))
        ]

    def used_memory_byte_size(self, device: Device) -> int:
        raise AssertionError("nobody asks for it")

    def sample(self, device: Device) -> DeviceSample:
        self.asked += 1
        if device.id in self.failure:
            raise NoDevices(self.failure[device.id])
        return self.samples[device.id]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def values(registry: CollectorRegistry) -> dict[str, float]:
    return {
        f"{family.name}{'@' if sample.labels else ''}{sample.labels.get('gpu_uuid', '')}": sample.value
        for family in text_string_to_metric_families(render(registry).decode())
        for sample in family.samples
    }


def test_processors_are_busy_for_a_part_of_the_time_between_two_samples(proc: Proc) -> None:
    sampler = CpuSampler(proc.path)
    assert sampler.sample().utilization is None

    #          user nice system idle iowait irq softirq steal guest guest_nice
    proc.ticks(10, 5, 15, 50, 10, 3, 4, 3, 99, 99)

    assert sampler.sample().utilization == pytest.approx(40 / 100)
    assert sampler.sample().utilization == 0


def test_idle_time_that_goes_backwards_does_not_make_more_than_all_of_it(proc: Proc) -> None:
    sampler = CpuSampler(proc.path)
    proc.ticks(10, 0, 0, 100)
    sampler.sample()
    proc.ticks(20, 0, 0, 90)

    assert sampler.sample().utilization == 1


def test_memory_is_used_when_no_program_could_have_it(proc: Proc) -> None:
    sample = CpuSampler(proc.path).sample()

    assert (sample.memory_byte_size, sample.used_memory_byte_size) == (1_024_000, 614_400)


class HalfBusy(CpuSampler):
    """Always sees three processors of four busy."""

    def sample(self) -> CpuSample:
        sample = super().sample()
        return sample if sample.utilization is None else replace(sample, utilization=0.75)


def test_the_families_have_tritons_names_and_what_was_sampled_last(proc: Proc) -> None:
    registry = CollectorRegistry()
    metrics = MachineMetrics(registry, 0.02, cpu=HalfBusy(proc.path))
    assert render(registry) == b""

    metrics.start()
    until(lambda: "nv_cpu_utilization" in values(registry))
    metrics.stop()

    assert values(registry) == {
        "nv_cpu_utilization": 0.75,
        "nv_cpu_memory_total_bytes": 1_024_000,
        "nv_cpu_memory_used_bytes": 614_400,
    }


def test_a_system_that_shows_nothing_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    metrics = MachineMetrics(registry, 0.02, cpu=CpuSampler(tmp_path / "none"))

    metrics.start()
    metrics.stop()

    assert render(registry) == b""
    assert caplog.text.count("error initializing CPU metrics") == 1


def started(cards: Cards, proc: Proc | None = None) -> tuple[CollectorRegistry, MachineMetrics]:
    registry = CollectorRegistry()
    gpus = Gpus(cards)
    gpus.discover()
    metrics = MachineMetrics(registry, 0.02, cpu=CpuSampler(proc.path) if proc else None, gpus=gpus)
    metrics.start()
    return registry, metrics


def test_each_gpu_has_its_series_and_energy_counts_from_the_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cards = Cards(
        DeviceSample(0.25, 100, 60, 50.5, 250.0, 1000.0), DeviceSample(0.0, 100, 0, 10.0, 250.0, 5.0)
    )
    registry, metrics = started(cards)
    until(lambda: bool(values(registry)))

    cards.samples[0] = DeviceSample(0.5, 100, 70, 60.5, 250.0, 1002.5)
    until(lambda: values(registry)["nv_gpu_utilization@GPU-0"] == 0.5)
    metrics.stop()

    found = values(registry)
    assert {name: value for name, value in found.items() if name.endswith("0")} == {
        "nv_energy_consumption@GPU-0": 2.5,
        "nv_gpu_utilization@GPU-0": 0.5,
        "nv_gpu_memory_total_bytes@GPU-0": 100,
        "nv_gpu_memory_used_bytes@GPU-0": 70,
        "nv_gpu_power_usage@GPU-0": 60.5,
        "nv_gpu_power_limit@GPU-0": 250,
    }
    assert found["nv_energy_consumption@GPU-1"] == 0
    assert "# TYPE nv_energy_consumption counter" in render(registry).decode()
    assert "Collecting metrics for GPU 1: Test GPU" in caplog.text


def test_energy_goes_on_to_count_when_the_driver_begins_anew() -> None:
    cards = Cards(DeviceSample(energy_j=1000.0))
    registry, metrics = started(cards)
    until(lambda: bool(values(registry)))

    cards.samples[0] = DeviceSample(energy_j=3.0)
    until(lambda: values(registry)["nv_energy_consumption@GPU-0"] == 3)
    metrics.stop()


def test_what_a_gpu_does_not_tell_is_not_on_the_page() -> None:
    registry, metrics = started(Cards(DeviceSample(memory_byte_size=100, used_memory_byte_size=1)))

    until(lambda: bool(values(registry)))
    metrics.stop()

    assert set(values(registry)) == {"nv_gpu_memory_total_bytes@GPU-0", "nv_gpu_memory_used_bytes@GPU-0"}


def test_a_gpu_that_fails_three_times_is_given_up_and_the_other_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cards = Cards(DeviceSample(utilization=0.1), DeviceSample(utilization=0.2))
    cards.failure[0] = "GPU is lost"

    registry, metrics = started(cards)
    until(lambda: "are given up" in caplog.text)
    cards.samples[1] = DeviceSample(utilization=0.3)
    until(lambda: values(registry) == {"nv_gpu_utilization@GPU-1": 0.3})
    metrics.stop()

    assert caplog.text.count("metrics of GPU 0 cannot be read: GPU is lost") == 2
    assert caplog.text.count("metrics of GPU 0 cannot be read, and are given up: GPU is lost") == 1


def test_without_hardware_nothing_is_sampled_and_nothing_shown() -> None:
    registry, metrics = started(Cards())

    metrics.stop()

    assert render(registry) == b""
    assert metrics._thread is None


@pytest.mark.parametrize(("cpu", "gpu", "names"), [(True, False, {"nv_cpu"}), (False, True, {"nv_gpu"})])
def test_options_say_what_is_sampled(cpu: bool, gpu: bool, names: set[str]) -> None:
    registry = CollectorRegistry()
    gpus = Gpus(Cards(DeviceSample(utilization=0.5)))
    gpus.discover()
    options = ServerOptions((), allow_cpu_metrics=cpu, allow_gpu_metrics=gpu, metrics_interval_ms=20)
    metrics = machine_metrics(options, registry, gpus)
    assert metrics is not None
    metrics.start()
    until(lambda: bool(values(registry)))
    metrics.stop()

    assert {name[:6] for name in values(registry)} == names


def test_options_can_ask_for_nothing() -> None:
    options = ServerOptions((), allow_cpu_metrics=False, allow_gpu_metrics=False)

    assert machine_metrics(options, CollectorRegistry(), Gpus(Cards())) is None


def test_this_machine_is_seen() -> None:
    sampler = CpuSampler()
    first = sampler.sample()

    assert 0 < first.used_memory_byte_size < first.memory_byte_size
    utilization = sampler.sample().utilization
    assert utilization is not None
    assert math.isfinite(utilization)
