"""Metrics of shared objects: their values live in the C library, and are copied for a scrape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tritonpy.abi_host import MetricFamily, MetricKind, MetricSample

from tritonpy_abi.shim import Shim

_KINDS: tuple[MetricKind, ...] = ("counter", "gauge", "histogram")
"""By the numbers of `TRITONSERVER_MetricKind`."""


def read_metrics(shim: Shim) -> Iterator[MetricFamily]:
    """Every family that has a metric, on any thread."""
    return families_of(shim.metrics())


def families_of(text: str) -> Iterator[MetricFamily]:
    """The families in the result of `Shim.metrics`, also of another process.

    Raises:
        ArithmeticError, LookupError, RecursionError, TypeError, ValueError: it is something else.
    """
    for family in json.loads(text):
        kind = _KINDS[family["kind"]]
        samples = []
        for metric in family["metrics"]:
            labels = {str(name): str(value) for name, value in dict(metric["labels"]).items()}
            bounds: Sequence[float] = ()
            counts: Sequence[int] = ()
            if kind == "histogram":
                bounds = [float(bound) for bound in metric["bounds"]]
                counts = [int(count) for count in metric["counts"]]
            set_count = int(metric["set_count"])
            samples.append(MetricSample(labels, float(metric["value"]), bounds, counts, set_count))
        yield MetricFamily(str(family["name"]), str(family["description"]), kind, samples)
