"""Counts of what was sent and answered since the last look, of one client."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from tritonpy_bench.histogram import Histogram
from tritonpy_bench.measurement import Window

_MOST_WAITING = 1 << 16  # latencies that wait to be put into the histogram, which is quicker for many at once
_MOST_TEXTS = 50
_MOST_CHARACTERS = 300

Clock = Callable[[], int]
"""Nanoseconds that only go forward."""


class Tally:
    """Collects what a window holds.

    Args:
        clock: for the length of windows.
        cpu_clock: processor time of the thread that sends.
    """

    __slots__ = (
        "_clock",
        "_cpu_clock",
        "_cpu_ns",
        "_errors",
        "_latency",
        "_served",
        "_service",
        "_since_ns",
        "_waiting",
        "sent_count",
    )

    def __init__(self, clock: Clock = time.perf_counter_ns, cpu_clock: Clock = time.thread_time_ns) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._begin()

    def succeeded(self, latency_ns: int) -> None:
        """Count a request that was answered."""
        waiting = self._waiting
        waiting.append(latency_ns)
        if len(waiting) >= _MOST_WAITING:
            self._latency.add(waiting)
            waiting.clear()

    def served(self, service_ns: int) -> None:
        """Note how long a request took from when it was sent, where its latency began before."""
        served = self._served
        served.append(service_ns)
        if len(served) >= _MOST_WAITING:
            self._service.add(served)
            served.clear()

    def failed(self, text: str) -> None:
        """Count a request that failed; beyond the fiftieth, new texts are counted together."""
        text = text[:_MOST_CHARACTERS]
        if text not in self._errors and len(self._errors) >= _MOST_TEXTS:
            text = "errors of other texts"
        self._errors[text] += 1

    def take(self) -> Window:
        """What came since the last call, and begin anew."""
        self._latency.add(self._waiting)
        self._service.add(self._served)
        window = Window(
            (self._clock() - self._since_ns) / 1e9,
            self._latency,
            self._errors,
            self.sent_count,
            (self._cpu_clock() - self._cpu_ns) / 1e9,
            service_ns=self._service,
        )
        self._begin()
        return window

    def _begin(self) -> None:
        self._since_ns, self._cpu_ns = self._clock(), self._cpu_clock()
        self._latency, self._service, self._errors = Histogram(), Histogram(), Counter[str]()
        self._waiting: list[int] = []
        self._served: list[int] = []
        self.sent_count = 0
