"""The page of a server: its own metrics, and behind them those of the process that it is in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric

from tritonpy.metrics.exposition import number_text
from tritonpy.process_metrics import MetricFamily, MetricSample, process_metrics

_log = logging.getLogger("tritonpy.metrics")


class MetricsPage:
    """All families of a page; a collector, as prometheus_client has it.

    Args:
        registry: of the server; its names come first.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._refused = set[str]()

    def collect(self) -> Iterator[Metric]:
        """Every family; on any thread."""
        others = [_as_metric(family) for family in process_metrics()]
        if not others:  # as it nearly always is: nobody needs the names
            yield from self._registry.collect()
            return
        taken = set[str]()
        for metric in self._registry.collect():
            taken |= _names(metric)
            yield metric
        for metric in others:
            if taken.isdisjoint(_names(metric)):
                taken |= _names(metric)
                yield metric
            else:
                self._refuse(metric.name)

    def _refuse(self, name: str) -> None:
        if name not in self._refused:
            self._refused.add(name)
            _log.warning(
                "metric family '%s' of a plugin is not shown: the server or one of its models has one of "
                "that name; choose another",
                name,
            )


def _names(metric: Metric) -> set[str]:
    """Every name that lines of the family begin with."""
    return {metric.name, *(sample.name for sample in metric.samples)}


def _as_metric(family: MetricFamily) -> Metric:
    metric = Metric(family.name, family.description, family.kind)
    for sample in family.samples:
        if family.kind == "histogram":
            _add_histogram(metric, sample)
        else:
            metric.add_sample(family.name, dict(sample.labels), sample.value)
    return metric


def _add_histogram(metric: Metric, sample: MetricSample) -> None:
    metric.add_sample(f"{metric.name}_count", dict(sample.labels), sum(sample.counts))
    metric.add_sample(f"{metric.name}_sum", dict(sample.labels), sample.value)
    limits = [*map(number_text, sample.bounds), "+Inf"]
    for limit, so_far in zip(limits, accumulate(sample.counts), strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**sample.labels, "le": limit}, so_far)
