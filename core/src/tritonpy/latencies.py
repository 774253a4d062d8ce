"""Distribution of the latencies of a model version: quantiles of the last minute, and a histogram.

Nothing of this exists unless the server was told to keep it (`--metrics-config`). What a request costs then
is measured by `benchmarks/metrics_cost.py`. Owned by the loop like the counters beside it; a scrape takes a
copy.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

WINDOW_S = 60
SLICE_COUNT = 5
"""A window is as many slices, the oldest leaves at once: quantiles are of the last 48 to 60 seconds."""

_SLICE_NS = WINDOW_S * 1_000_000_000 // SLICE_COUNT
_KEPT_BITS = 10
_EXACT = 1 << _KEPT_BITS

REQUEST, QUEUE, CACHE_HIT, CACHE_MISS = "request", "queue", "cache_hit", "cache_miss"
COMPUTE = ("compute_input", "compute_infer", "compute_output")


class Summary:
    """Number and sum of durations since the load, and the distribution of the last minute's.

    Equal durations are counted together, and equal are those whose ten leading bits are: a quantile is one
    of the durations that there were, less at most 0.2 %, and its rank is exact. What it holds grows with the
    number of different durations, not with their number.
    """

    __slots__ = ("_latest", "_older", "count", "sum_us")

    def __init__(self) -> None:
        self.count = 0
        self.sum_us = 0
        self._latest: dict[int, int] = {}
        self._older: list[dict[int, int]] = []

    def add(self, duration_us: int, count: int = 1) -> None:
        """Add `count` observations of the same duration."""
        self.count += count
        self.sum_us += duration_us * count
        if duration_us >= _EXACT:
            shift = duration_us.bit_length() - _KEPT_BITS
            duration_us = duration_us >> shift << shift
        latest = self._latest
        latest[duration_us] = latest.get(duration_us, 0) + count

    def turn(self, slice_count: int = 1) -> None:
        """Begin a new slice, and drop the oldest; `slice_count` of them after a long pause."""
        for _ in range(min(slice_count, SLICE_COUNT)):
            self._older = [*self._older[-(SLICE_COUNT - 2) :], self._latest]
            self._latest = {}

    def snapshot(self) -> Summary:
        """A copy that another thread may read; full slices do not change and are shared."""
        copy = Summary()
        copy.count, copy.sum_us = self.count, self.sum_us
        copy._older = [*self._older, self._latest.copy()]
        return copy

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """For each part of 1: the duration that this part of the last minute's does not exceed, or NaN."""
        merged: dict[int, int] = {}
        for counts in (*self._older, self._latest):
            for duration_us, count in counts.items():
                merged[duration_us] = merged.get(duration_us, 0) + count
        total = sum(merged.values())
        if not total:
            return [float("nan")] * len(wanted)
        found: dict[float, float] = {}
        ascending = iter(sorted(merged.items()))
        duration_us, so_far = next(ascending)
        for part in sorted(wanted):
            while so_far < part * total:
                duration_us, count = next(ascending)
                so_far += count
            found[part] = duration_us
        return [found[part] for part in wanted]


class Histogram:
    """Counts of durations by their upper bounds, since the load.

    Args:
        bounds_ms: ascending, without infinity.
    """

    __slots__ = ("bounds_ms", "counts", "sum_ms")

    def __init__(self, bounds_ms: Sequence[float]) -> None:
        self.bounds_ms = bounds_ms
        self.counts = [0] * (len(bounds_ms) + 1)
        self.sum_ms = 0.0

    def add(self, duration_ms: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.bounds_ms, duration_ms)] += 1
        self.sum_ms += duration_ms

    def snapshot(self) -> Histogram:
        """A copy that another thread may read."""
        copy = Histogram(self.bounds_ms)
        copy.counts, copy.sum_ms = self.counts.copy(), self.sum_ms
        return copy


class Latencies:
    """The summaries of one model version, and the histogram of its first responses.

    Args:
        phases: which summaries are kept: none, or those of `COMPUTE` and more. The values of others
            are ignored.
        first_response: None where it is not kept.
        clock: monotonic nanoseconds.
        is_decoupled: first responses are recorded; those of other models are their requests' ends.
    """

    __slots__ = ("_clock", "_is_decoupled", "_turn_ns", "first_response", "summaries")

    def __init__(
        self,
        phases: Iterable[str] = (),
        first_response: Histogram | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        is_decoupled: bool = True,
    ) -> None:
        self._is_decoupled = is_decoupled
        self.summaries = {phase: Summary() for phase in phases}
        self.first_response = first_response
        self._clock = clock
        self._turn_ns = clock() + _SLICE_NS

    def add(self, phase: str, duration_ns: int) -> None:
        """Add one request."""
        self.add_each(phase, (duration_ns,))

    def add_compute(self, durations_ns: tuple[int, int, int], count: int) -> None:
        """Add `count` requests of one batch, which took as long in each phase of `COMPUTE`."""
        summaries = self.summaries
        if summaries and count:
            self._turn_when_due()
            input_ns, infer_ns, output_ns = durations_ns
            summaries["compute_input"].add(input_ns // 1000, count)
            summaries["compute_infer"].add(infer_ns // 1000, count)
            summaries["compute_output"].add(output_ns // 1000, count)

    def add_each(self, phase: str, durations_ns: Sequence[int]) -> None:
        """Add requests that took times of their own."""
        if phase is REQUEST and self.first_response is not None and not self._is_decoupled:
            for duration_ns in durations_ns:
                self.first_response.add(duration_ns / 1_000_000)
        summary = self.summaries.get(phase)
        if summary is not None:
            self._turn_when_due()
            for duration_ns in durations_ns:
                summary.add(duration_ns // 1000)

    def snapshot(self) -> Latencies:
        """A copy that another thread may read while the loop counts on."""
        self._turn_when_due()
        copy = Latencies((), self.first_response.snapshot() if self.first_response else None)
        copy.summaries = {phase: summary.snapshot() for phase, summary in self.summaries.items()}
        return copy

    def _turn_when_due(self) -> None:
        now_ns = self._clock()
        if now_ns < self._turn_ns:
            return
        count = (now_ns - self._turn_ns) // _SLICE_NS + 1
        self._turn_ns += count * _SLICE_NS
        for summary in self.summaries.values():
            summary.turn(count)
