"""Whether the last windows agree, so that a load need not go on; pure."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy_bench.load import Stability
from tritonpy_bench.measurement import Window


def agree(windows: Sequence[Window], stability: Stability) -> bool:
    """True if the last windows had requests, and rates and latencies that differ little from their means."""
    last = windows[-stability.windows :]
    if len(last) < stability.windows or not all(window.request_count for window in last):
        return False
    rates = [window.requests_per_s for window in last]
    return _are_close(rates, stability.spread) and _are_close(
        [_latency(window, stability.percentile) for window in last], stability.spread
    )


def _latency(window: Window, percentile: float | None) -> float:
    latency = window.latency_ns
    return latency.mean if percentile is None else latency.percentile(percentile)


def _are_close(values: Sequence[float], spread: float) -> bool:
    mean = sum(values) / len(values)
    return all(abs(value - mean) <= spread * mean for value in values)
