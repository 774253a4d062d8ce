"""The machine's families, as Triton has them: processors and memory (`nv_cpu_*`), GPUs (`nv_gpu_*`).

A thread samples them, because files of the kernel and drivers may take their time; a scrape shows the latest
samples. What the machine does not tell is not on the page.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric

from tritonpy.devices.device import Device, DeviceSample, NoDevices
from tritonpy.devices.gpus import Gpus
from tritonpy.options import ServerOptions

_log = logging.getLogger("tritonpy.metrics")

_LEAST_INTERVAL_S = 0.01
_MOST_FAILURES = 3
_STOP_TIMEOUT_S = 1.0
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal of /proc/stat
_IDLE = (3, 4)  # idle, iowait


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Processors and memory at one moment.

    Attributes:
        utilization: the part of the time since the sample before in which processors were busy, from 0 to
            1; None in the first one.
        memory_byte_size, used_memory_byte_size: of the machine; used is what is not available to programs.
    """

    utilization: float | None
    memory_byte_size: int
    used_memory_byte_size: int


class CpuSampler:
    """Reads the load of processors and memory of the whole machine, on Linux.

    Args:
        proc: where the system shows it.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before: tuple[int, int] | None = None

    def sample(self) -> CpuSample:
        """Read the present numbers.

        Raises:
            OSError, ValueError, KeyError: this system does not show it, or shows it otherwise.
        """
        words = (self._proc / "stat").read_text().split("\n", 1)[0].split()
        if words[:1] != ["cpu"]:
            raise ValueError(f"{self._proc}/stat begins with '{' '.join(words[:1])}', expected 'cpu'")
        ticks = [*map(int, words[1:]), *[0] * 8]
        now = sum(ticks[index] for index in _BUSY), sum(ticks[index] for index in _IDLE)
        utilization = None
        if self._before is not None:
            # Idle time is known to go backwards now and then.
            busy, idle = (max(0, new - old) for new, old in zip(now, self._before, strict=True))
            utilization = busy / (busy + idle) if busy + idle else 0.0
        self._before = now
        lines = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        memory = {name.rstrip(":"): int(size) * 1024 for name, size, *_ in lines}
        total = memory["MemTotal"]
        return CpuSample(utilization, total, total - min(memory["MemAvailable"], total))


class MachineMetrics:
    """Collects the families of the machine, from what its thread has sampled last.

    Args:
        registry: where to register; one per server.
        interval_s: how old a sample may be; there are two in this time, as with Triton.
        cpu: samples processors and memory; None for nothing of them.
        gpus: has been discovered when `start` is called; None for nothing of GPUs.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        interval_s: float,
        *,
        cpu: CpuSampler | None = None,
        gpus: Gpus | None = None,
    ) -> None:
        self._pause_s = max(_LEAST_INTERVAL_S, interval_s / 2)
        self._cpu = cpu
        self._gpus = gpus
        self._cpu_sample: CpuSample | None = None  # set on the thread, read where the page is made
        self._gpu_samples: Sequence[tuple[str, DeviceSample]] = ()
        self._first_energy_j: dict[str, float] = {}
        self._failure_counts: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        registry.register(self)

    def start(self) -> None:
        """Begin to sample."""
        if self._cpu is not None:
            try:
                self._cpu_sample = self._cpu.sample()
                _log.info("Collecting CPU metrics")
            except (OSError, ValueError, KeyError) as exc:
                _log.warning("error initializing CPU metrics, they will not be available: %r", exc)
                self._cpu = None
        for device in self._devices():
            _log.info("Collecting metrics for GPU %d: %s", device.id, device.name)
        if self._cpu is None and not self._devices():
            return
        self._thread = threading.Thread(target=self._run, name="tritonpy-machine-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sample no more; a driver that does not answer is not waited for."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)

    def describe(self) -> Iterator[Metric]:
        """Every family without samples: the registry refuses a second one of the same name."""
        yield from _gpu_families(())
        yield from _cpu_families(None)

    def collect(self) -> Iterator[Metric]:
        """Every family with its latest samples; on any thread."""
        yield from _gpu_families(self._gpu_samples)
        yield from _cpu_families(self._cpu_sample)

    def _devices(self) -> list[Device]:
        return self._gpus.devices if self._gpus is not None else []

    def _run(self) -> None:
        self._sample_gpus()
        while not self._stopping.wait(self._pause_s):
            if self._cpu is not None:
                try:
                    self._cpu_sample = self._cpu.sample()
                except (OSError, ValueError, KeyError) as exc:
                    self._cpu_sample = None
                    _log.warning("CPU metrics cannot be read: %r", exc)
            self._sample_gpus()

    def _sample_gpus(self) -> None:
        samples = []
        for device in self._devices():
            failure_count = self._failure_counts.get(device.uuid, 0)
            if failure_count >= _MOST_FAILURES or self._stopping.is_set():
                continue
            assert self._gpus is not None  # it has devices
            try:
                sample = self._gpus.sample(device)
            except NoDevices as exc:
                self._failure_counts[device.uuid] = failure_count + 1
                is_last = failure_count + 1 >= _MOST_FAILURES
                end = ", and are given up" if is_last else ""
                _log.warning("metrics of GPU %d cannot be read%s: %s", device.id, end, exc)
                continue
            self._failure_counts[device.uuid] = 0
            samples.append((device.uuid, self._since_start(device.uuid, sample)))
        self._gpu_samples = samples

    def _since_start(self, uuid: str, sample: DeviceSample) -> DeviceSample:
        """The sample with the energy that the GPU has used since the server started."""
        if sample.energy_j is None:
            return sample
        first_j = self._first_energy_j.setdefault(uuid, sample.energy_j)
        if sample.energy_j < first_j:  # the driver was loaded anew
            first_j = self._first_energy_j[uuid] = 0.0
        return replace(sample, energy_j=sample.energy_j - first_j)


def machine_metrics(options: ServerOptions, registry: CollectorRegistry, gpus: Gpus) -> MachineMetrics | None:
    """The machine's metrics that the options ask for; None for none."""
    if not options.allow_cpu_metrics and not options.allow_gpu_metrics:
        return None
    return MachineMetrics(
        registry,
        options.metrics_interval_ms / 1000,
        cpu=CpuSampler() if options.allow_cpu_metrics else None,
        gpus=gpus if options.allow_gpu_metrics else None,
    )


# name, help, kind, value
_GPU: Sequence[tuple[str, str, str, Callable[[DeviceSample], float | None]]] = (
    (
        "nv_energy_consumption",
        "GPU energy consumption in joules since the Triton Server started",
        "counter",
        lambda s: s.energy_j,
    ),
    ("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", lambda s: s.utilization),
    ("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "gauge", lambda s: s.memory_byte_size),
    ("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "gauge", lambda s: s.used_memory_byte_size),
    ("nv_gpu_power_usage", "GPU power usage in watts", "gauge", lambda s: s.power_w),
    ("nv_gpu_power_limit", "GPU power management limit in watts", "gauge", lambda s: s.power_limit_w),
)
_CPU: Sequence[tuple[str, str, Callable[[CpuSample], float | None]]] = (
    ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", lambda s: s.utilization),
    ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", lambda s: s.memory_byte_size),
    ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", lambda s: s.used_memory_byte_size),
)


def _gpu_families(samples: Sequence[tuple[str, DeviceSample]]) -> Iterator[Metric]:
    for name, text, kind, value_of in _GPU:
        family = Metric(name, text, kind)
        for uuid, sample in samples:
            value = value_of(sample)
            if value is not None:
                family.add_sample(name, {"gpu_uuid": uuid}, value)
        yield family


def _cpu_families(sample: CpuSample | None) -> Iterator[Metric]:
    for name, text, value_of in _CPU:
        family = Metric(name, text, "gauge")
        value = value_of(sample) if sample is not None else None
        if value is not None:
            family.add_sample(name, {}, value)
        yield family
