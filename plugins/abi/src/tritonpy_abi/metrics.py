"""Metrics of shared objects: their values live in the C library, and are copied for a scrape."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tritonpy.abi_host import MetricFamily, MetricKind, MetricSample

from tritonpy_abi.shim import Shim

_KINDS: tuple[MetricKind, ...] = ("counter", "gauge", "histogram")
"""By the numbers of `TRITONSERVER_MetricKind`."""


def read_metrics(shim: Shim) -> Iterator[MetricFamily]:
    """Every family that has a metric, on any thread."""
    size = shim.ffi.new("size_t *")
    data = shim.lib.TRITONPY_MetricsRead(size)
    if data == shim.ffi.NULL:
        return
    try:
        text = shim.ffi.buffer(data, size[0])[:].decode(errors="replace")
    finally:
        shim.lib.TRITONPY_MetricsFree(data)
    for family in json.loads(text):
        is_histogram = _KINDS[family["kind"]] == "histogram"
        yield MetricFamily(
            family["name"],
            family["description"],
            _KINDS[family["kind"]],
            [
                MetricSample(
                    metric["labels"],
                    metric["value"],
                    metric["bounds"] if is_histogram else (),
                    metric["counts"] if is_histogram else (),
                )
                for metric in family["metrics"]
            ],
        )
