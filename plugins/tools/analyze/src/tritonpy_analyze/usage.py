"""What a server uses in a stretch of time: memory, processor and GPUs."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used; NaN of what nobody can tell.

    Attributes:
        memory_byte_size: at the end.
        cpu_cores: cores that were busy, on the average.
        gpu_memory_byte_size, gpu_utilization: of all GPUs at the end, the latter as their mean from 0 to 1.
    """

    memory_byte_size: float = math.nan
    cpu_cores: float = math.nan
    gpu_memory_byte_size: float = math.nan
    gpu_utilization: float = math.nan


class UsageMeter(Protocol):
    """Tells what a server uses."""

    def begin(self) -> None:
        """Begin a stretch of time."""

    def end(self) -> Usage:
        """End it."""
        ...


class ProcessMeter:
    """Of a process of this machine and all that it has started; satisfies `UsageMeter`.

    Memory that workers share with the server is counted once, where the system tells it (Linux).

    Args:
        pid: of the server.
        metrics: its metrics, as text.
    """

    def __init__(self, pid: int, metrics: Callable[[], str]) -> None:
        self._process = psutil.Process(pid)
        self._metrics = metrics
        self._began = (0.0, 0.0)

    def begin(self) -> None:
        """See `UsageMeter`."""
        self._began = (time.monotonic(), self._cpu_s())

    def end(self) -> Usage:
        """See `UsageMeter`."""
        seconds, cpu_s = time.monotonic() - self._began[0], self._cpu_s() - self._began[1]
        memory = sum(map(_memory_of, self._processes()))
        gpu = gpu_usage(self._metrics())
        return Usage(memory, cpu_s / seconds if seconds else math.nan, *gpu)

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.Error:  # it has ended
            return []

    def _cpu_s(self) -> float:
        total = 0.0
        for process in self._processes():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total


def _memory_of(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.Error:
        return 0


class MetricsMeter:
    """Of a server elsewhere, by its metrics alone; satisfies `UsageMeter`.

    Memory is that of its machine (`nv_cpu_memory_used_bytes`), processor that of the machine, too.
    """

    def __init__(self, metrics: Callable[[], str]) -> None:
        self._metrics = metrics

    def begin(self) -> None:
        """See `UsageMeter`."""

    def end(self) -> Usage:
        """See `UsageMeter`."""
        text = self._metrics()
        memory = samples(text, "nv_cpu_memory_used_bytes")
        return Usage(memory[0] if memory else math.nan, math.nan, *gpu_usage(text))


def gpu_usage(metrics: str) -> tuple[float, float]:
    """Memory of all GPUs and their mean utilization, from metrics; NaN without."""
    memory = samples(metrics, "nv_gpu_memory_used_bytes")
    busy = samples(metrics, "nv_gpu_utilization")
    return sum(memory) if memory else math.nan, sum(busy) / len(busy) if busy else math.nan


def samples(metrics: str, name: str) -> list[float]:
    """The values of a metric, one for each set of labels."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", metrics, re.MULTILINE)
    return [float(value) for value in found]
