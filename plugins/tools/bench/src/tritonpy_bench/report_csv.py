"""Measurements as CSV with columns named as perf_analyzer names them, and some of our own; pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tritonpy_bench.measurement import Measurement
from tritonpy_bench.paces import Concurrency, Rate

_SERVER = {
    "Server Queue": "queue",
    "Server Compute Input": "compute_input",
    "Server Compute Infer": "compute_infer",
    "Server Compute Output": "compute_output",
    "Server Cache Hit": "cache_hit",
    "Server Cache Miss": "cache_miss",
}
_PERCENTILES = (50, 90, 95, 99)


def csv_report(measurements: Sequence[Measurement]) -> str:
    """A row for each load; times are microseconds."""
    first = measurements[0].load.pace
    load = {Concurrency: "Concurrency", Rate: "Request Rate"}.get(type(first), "Load")
    header = [load, "Inferences/Second", *_SERVER, *(f"p{percent} latency" for percent in _PERCENTILES)]
    header += ["Avg latency", "Requests", "Failed", "Stable", "Responses/Second", "Mean batch size"]
    header += ["Tokens/Second"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for measurement in measurements:
        writer.writerow(_row(measurement))
    return text.getvalue()


def _row(measurement: Measurement) -> Sequence[object]:
    pace = measurement.load.pace
    side = measurement.server[0] if measurement.server else None
    durations = side.durations_us if side else {}
    return (
        pace.requests
        if isinstance(pace, Concurrency)
        else pace.per_s
        if isinstance(pace, Rate)
        else str(pace),
        f"{measurement.infer_per_s:.3f}",
        *(f"{durations.get(phase, 0):.0f}" for phase in _SERVER.values()),
        *(f"{measurement.latency_us(percent):.0f}" for percent in _PERCENTILES),
        f"{measurement.latency_us():.0f}",
        measurement.total.request_count,
        measurement.error_count,
        "yes" if measurement.is_stable else "no",
        f"{measurement.total.responses_per_s:.3f}",
        f"{side.mean_batch_size:.3f}" if side else "",
        f"{measurement.total.tokens_per_s:.3f}" if measurement.load.tokens else "",
    )
