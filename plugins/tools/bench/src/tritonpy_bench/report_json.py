"""Measurements as JSON."""

from __future__ import annotations

from typing import Any

from tritonpy_bench.histogram import Histogram
from tritonpy_bench.measurement import PERCENTILES, Measurement, ServerSide, Window

JsonObject = dict[str, Any]  # Any: JSON


def measurement_json(measurement: Measurement) -> JsonObject:
    """All of a measurement."""
    load = measurement.load
    return {
        "load": {
            "model": load.model,
            "version": load.version,
            "url": load.url,
            "protocol": load.protocol,
            "pace": str(load.pace),
            "batch_size": load.batch_size,
            "endpoint": load.endpoint,
            "shared_memory": load.shared_memory,
        },
        "is_stable": measurement.is_stable,
        "requests_per_s": measurement.requests_per_s,
        "infer_per_s": measurement.infer_per_s,
        "latency_us": latencies_json(measurement.latency_ns),
        "service_us": latencies_json(measurement.total.service_ns)
        if measurement.total.service_ns.count
        else None,
        "responses": _responses(measurement.total),
        "tokens": _tokens(measurement.total) if load.tokens else None,
        "errors": dict(measurement.total.errors.most_common()),
        "client_busy": measurement.client_busy,
        "total": _window(measurement.total),
        "windows": [_window(window) for window in measurement.windows],
        "server": [_server(side) for side in measurement.server],
    }


def latencies_json(histogram: Histogram) -> JsonObject:
    """What tables show of latencies, in microseconds, and the buckets of the histogram in nanoseconds."""
    return {
        "count": histogram.count,
        "mean": histogram.mean / 1000,
        "deviation": histogram.deviation / 1000,
        "least": histogram.least / 1000,
        "greatest": histogram.greatest / 1000,
        **{f"p{percent:g}": histogram.percentile(percent) / 1000 for percent in PERCENTILES},
        "buckets_ns": histogram.bins(),
    }


def _responses(total: Window) -> JsonObject | None:
    """What is known where a request may have several responses."""
    if not total.has_responses:
        return None
    return {
        "count": total.response_count,
        "per_s": total.responses_per_s,
        "first_us": latencies_json(total.first_ns),
        "between_us": latencies_json(total.between_ns),
    }


def _tokens(total: Window) -> JsonObject:
    """What is known where elements of an output are counted."""
    return {
        "count": total.token_count,
        "per_s": total.tokens_per_s,
        "per_request": total.tokens_per_request,
        "between_us": latencies_json(total.token_gap_ns) if total.token_gap_ns.count else None,
    }


def _window(window: Window) -> JsonObject:
    return {
        "duration_s": window.duration_s,
        "request_count": window.request_count,
        "error_count": window.error_count,
        "sent_count": window.sent_count,
        "requests_per_s": window.requests_per_s,
        "mean_us": window.latency_ns.mean / 1000,
        "p99_us": window.latency_ns.percentile(99) / 1000,
        "client_cpu_s": window.client_cpu_s,
    }


def _server(side: ServerSide) -> JsonObject:
    return {
        "model": side.model,
        "version": side.version,
        "inference_count": side.inference_count,
        "execution_count": side.execution_count,
        "success_count": side.success_count,
        "fail_count": side.fail_count,
        "mean_batch_size": side.mean_batch_size,
        "durations_us": dict(side.durations_us),
        "batch_sizes": {str(size): count for size, count in side.batch_sizes.items()},
        "closed": dict(side.closed),
    }
