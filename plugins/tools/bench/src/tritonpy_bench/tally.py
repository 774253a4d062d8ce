"""Counts of what was sent and answered since the last look, of one client."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import repeat

from tritonpy_bench.answers import Outputs
from tritonpy_bench.histogram import Histogram
from tritonpy_bench.measurement import Window

_MOST_WAITING = 1 << 16  # values that wait to be put into a histogram, which is quicker for many at once
_MOST_TEXTS = 50
_MOST_CHARACTERS = 300

Clock = Callable[[], int]
"""Nanoseconds that only go forward."""


class Series:
    """Durations in nanoseconds, which become a histogram."""

    __slots__ = ("_histogram", "_waiting")

    def __init__(self) -> None:
        self._histogram = Histogram()
        self._waiting: list[int] = []

    def add(self, duration_ns: int) -> None:
        """Count one."""
        waiting = self._waiting
        waiting.append(duration_ns)
        if len(waiting) >= _MOST_WAITING:
            self._histogram.add(waiting)
            waiting.clear()

    def add_each(self, duration_ns: int, times: int) -> None:
        """Count one so many times."""
        waiting = self._waiting
        waiting.extend(repeat(duration_ns, times))
        if len(waiting) >= _MOST_WAITING:
            self._histogram.add(waiting)
            waiting.clear()

    def take(self) -> Histogram:
        """What was counted since the last call."""
        histogram = self._histogram
        histogram.add(self._waiting)
        self._waiting.clear()
        self._histogram = Histogram()
        return histogram


class Tally:
    """Collects what a window holds.

    Attributes:
        latency, service, first, between, token_gaps: the durations of the window's fields of these names.
        sent_count: requests sent since the last look.
        due_count: requests that an open loop was to send since then.

    Args:
        clock: for the length of windows.
        cpu_clock: processor time of the thread that sends.
        tokens: the output whose elements are counted; empty to count none.
        has_responses: calls are told of each response, of which a request may have several, or none.
    """

    __slots__ = (
        "_clock",
        "_cpu_clock",
        "_cpu_ns",
        "_errors",
        "_has_responses",
        "_since_ns",
        "_token_count",
        "_tokens",
        "between",
        "due_count",
        "first",
        "latency",
        "sent_count",
        "service",
        "token_gaps",
    )

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        cpu_clock: Clock = time.thread_time_ns,
        tokens: str = "",
        has_responses: bool = False,
    ) -> None:
        self._has_responses = has_responses
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._tokens = tokens
        self.latency, self.service, self.first, self.between = Series(), Series(), Series(), Series()
        self.token_gaps = Series()
        self._begin()

    def count_tokens(self, outputs: Outputs) -> int:
        """Count the elements of a response that are counted; how many it has."""
        output = outputs.get(self._tokens) if self._tokens else None
        count = output.element_count if output is not None else 0
        self._token_count += count
        return count

    def failed(self, text: str) -> None:
        """Count a request that failed; beyond the fiftieth, new texts are counted together."""
        text = text[:_MOST_CHARACTERS]
        if text not in self._errors and len(self._errors) >= _MOST_TEXTS:
            text = "errors of other texts"
        self._errors[text] += 1

    def take(self) -> Window:
        """What came since the last call, and begin anew."""
        window = Window(
            (self._clock() - self._since_ns) / 1e9,
            self.latency.take(),
            self._errors,
            self.sent_count,
            (self._cpu_clock() - self._cpu_ns) / 1e9,
            service_ns=self.service.take(),
            first_ns=self.first.take(),
            between_ns=self.between.take(),
            due_count=self.due_count,
            token_count=self._token_count,
            token_gap_ns=self.token_gaps.take(),
            has_responses=self._has_responses,
        )
        self._begin()
        return window

    def _begin(self) -> None:
        self._since_ns, self._cpu_ns = self._clock(), self._cpu_clock()
        self._errors = Counter[str]()
        self.sent_count = self.due_count = self._token_count = 0
