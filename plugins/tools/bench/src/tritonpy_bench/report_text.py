"""Measurements as tables for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tritonpy.cli.table import format_table

from tritonpy_bench.measurement import Measurement, ServerSide
from tritonpy_bench.paces import Rate

_PHASES = {
    "queue": "queue",
    "compute_input": "compute input",
    "compute_infer": "compute infer",
    "compute_output": "compute output",
    "cache_hit": "cache hit",
    "cache_miss": "cache miss",
}
_BUSY = 0.9
_KEPT = 0.97  # of a rate
_MOST_ERRORS = 5
_MOST_COUNTS = 8
_HEADER = ("load", "infer/s", "requests", "mean", "p50", "p90", "p95", "p99", "p99.9", "failed", "stable")


def text_report(measurements: Sequence[Measurement]) -> str:
    """A row for each load, then what the server says, and what is wrong."""
    load = measurements[0].load
    version = f" version {load.version}" if load.version else ""
    lines = [
        f"{load.model}{version}, {load.protocol} at {load.url}, "
        f"batch size {load.batch_size}; latencies in µs",
        "",
        format_table(_HEADER, map(_row, measurements)),
    ]
    for measurement in measurements:
        if said := notes(measurement):
            lines += ["", str(measurement.load.pace), *(f"  {line}" for line in said)]
    return "\n".join(lines)


def notes(measurement: Measurement) -> list[str]:
    """What there is to say of a load beside its row."""
    return [
        *_service(measurement),
        *_responses(measurement),
        *_tokens(measurement),
        *_server(measurement),
        *_errors(measurement),
        *_warnings(measurement),
    ]


def _row(measurement: Measurement) -> Sequence[str]:
    latency = measurement.latency_ns
    percentiles = [f"{latency.percentile(percent) / 1000:.0f}" for percent in (50, 90, 95, 99, 99.9)]
    return (
        str(measurement.load.pace),
        f"{measurement.infer_per_s:.1f}",
        str(latency.count),
        f"{latency.mean / 1000:.0f}",
        *percentiles,
        str(measurement.error_count),
        "yes" if measurement.is_stable else "no",
    )


def _server(measurement: Measurement) -> Iterator[str]:
    for side in measurement.server:
        yield f"server, {side.model} version {side.version}: {_durations(side)}"
        if side.execution_count:
            yield (
                f"  {side.execution_count} executions of {side.mean_batch_size:.2f} rows: "
                f"{_counts(side.batch_sizes, side.execution_count)}"
            )
        if side.closed:
            yield f"  batches closed: {_counts(side.closed, sum(side.closed.values()))}"
        if side.fail_count:
            yield f"  {side.fail_count} requests failed"


def _durations(side: ServerSide) -> str:
    parts = [
        f"{title} {side.durations_us[phase]:.0f}"
        for phase, title in _PHASES.items()
        if phase in side.durations_us
    ]
    return f"{side.durations_us.get('request', 0):.0f} µs a request ({', '.join(parts)})"


def _counts(counts: Mapping[int, int] | Mapping[str, int], total: int) -> str:
    """The most frequent with their parts of the whole, in the order they have."""
    kept = sorted(counts.items(), key=lambda item: -item[1])[:_MOST_COUNTS]
    shown = [f"{key} {count / total:.0%}" for key, count in counts.items() if (key, count) in kept]
    return ", ".join(shown) + (", …" if len(counts) > _MOST_COUNTS else "")


def _errors(measurement: Measurement) -> Iterator[str]:
    errors = measurement.total.errors
    ranked = errors.most_common()
    for text, count in ranked[:_MOST_ERRORS]:
        yield f"failed {count} times: {text}"
    if others := sum(count for _, count in ranked[_MOST_ERRORS:]):
        yield f"failed {others} times with other errors"


def _service(measurement: Measurement) -> Iterator[str]:
    service = measurement.total.service_ns
    if service.count:
        yield (
            f"from when requests were sent, not when they were due: mean {service.mean / 1000:.0f}, "
            f"p50 {service.percentile(50) / 1000:.0f}, p99 {service.percentile(99) / 1000:.0f} µs"
        )


def _responses(measurement: Measurement) -> Iterator[str]:
    total = measurement.total
    if not total.has_responses:
        return
    parts = [f"{total.responses_per_s:.1f} responses/s"]
    for title, histogram in (("first after", total.first_ns), ("then one each", total.between_ns)):
        if histogram.count:
            parts.append(
                f"{title} mean {histogram.mean / 1000:.0f}, p50 {histogram.percentile(50) / 1000:.0f}, "
                f"p99 {histogram.percentile(99) / 1000:.0f} µs"
            )
    yield "; ".join(parts)


def _tokens(measurement: Measurement) -> Iterator[str]:
    total = measurement.total
    if not measurement.load.tokens:
        return
    failed = ", with those that failed" if total.error_count else ""
    parts = [f"{total.tokens_per_s:.1f} tokens/s, {total.tokens_per_request:.1f} a request{failed}"]
    gaps = total.token_gap_ns
    if gaps.count:
        parts.append(
            f"one after the other mean {gaps.mean / 1000:.0f}, p50 {gaps.percentile(50) / 1000:.0f}, "
            f"p99 {gaps.percentile(99) / 1000:.0f} µs"
        )
    yield "; ".join(parts)


def _warnings(measurement: Measurement) -> Iterator[str]:
    if measurement.client_busy > _BUSY:
        yield (
            f"the clients were busy {measurement.client_busy:.0%} of the time: they, not the server, may be "
            f"the limit; send from more processes"
        )
    pace = measurement.load.pace
    total = measurement.total
    answered_per_s = (total.request_count + total.error_count) / (total.duration_s or 1)
    if isinstance(pace, Rate) and answered_per_s < _KEPT * pace.per_s:
        yield (
            f"{answered_per_s:.0f} requests were answered in a second where {pace.per_s:g} were due; "
            f"latencies are of requests that waited"
        )
    if not measurement.is_stable:
        rates = ", ".join(f"{window.requests_per_s:.0f}" for window in measurement.windows[-3:])
        yield f"not stable: requests/s of the last windows were {rates}"
