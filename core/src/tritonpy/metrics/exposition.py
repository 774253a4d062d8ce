"""The metrics page in the Prometheus text format, with Triton's names and in Triton's order.

`prometheus_client.generate_latest` appends `_total` to every counter it prints. Triton's counters have no
such suffix, and dashboards look for Triton's names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.samples import Sample

from tritonpy.process_metrics import MetricFamily, process_metrics

_KINDS = ("counter", "gauge", "histogram", "summary")
"""Families of one kind stand together."""

_LAST_LABELS = ("le", "quantile")
"""Labels that name the part of a family a line belongs to; they follow those of the owner."""


class Collector(Protocol):
    """A `CollectorRegistry`, or anything else that yields families."""

    def collect(self) -> Iterable[Metric]:
        """Every family with its samples."""


def render(collector: Collector) -> bytes:
    """Write all families that have a sample; labels in alphabetical order.

    Safe on a thread as long as the families are copies or lock themselves, as those of prometheus_client do.
    """
    lines: list[str] = []
    for metric in sorted(collector.collect(), key=_kind_order):
        # The moment a series was made is an OpenMetrics notion; Triton does not print it.
        samples = [sample for sample in metric.samples if sample.name != f"{metric.name}_created"]
        if not samples:
            continue
        name = metric.name
        if metric.type == "counter":
            name = samples[0].name
        if metric.documentation:
            lines.append(f"# HELP {name} {_escaped(metric.documentation)}")
        lines.append(f"# TYPE {name} {'untyped' if metric.type == 'unknown' else metric.type}")
        lines += map(_line, samples)
    lines.append("")
    return "\n".join(lines).encode()


def _kind_order(metric: Metric) -> int:
    return _KINDS.index(metric.type) if metric.type in _KINDS else len(_KINDS)


def _line(sample: Sample) -> str:
    labels = ",".join(
        f'{key}="{_escaped(value, quote=True)}"' for key, value in sorted(sample.labels.items(), key=_rank)
    )
    value = number_text(sample.value)
    return f"{sample.name}{{{labels}}} {value}" if labels else f"{sample.name} {value}"


def _rank(label: tuple[str, str]) -> tuple[bool, str]:
    return label[0] in _LAST_LABELS, label[0]


def number_text(value: float) -> str:
    """A number as Triton writes it and Prometheus reads it: sixteen digits of what is no whole number."""
    if value != value:
        return "Nan"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else f"{value:.16g}"


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text


_log = logging.getLogger("tritonpy.metrics")


class ModelMetric(Metric):
    """A family of models in workers; models of the same backend in this process may have it, too."""

    def joins(self, other: Metric) -> bool:
        """Take over the samples of a family of this name and kind, but for labels that are here."""
        if (other.name, other.type) != (self.name, self.type):
            return False
        here = {(sample.name, *sorted(sample.labels.items())) for sample in self.samples}
        self.samples += [
            sample for sample in other.samples if (sample.name, *sorted(sample.labels.items())) not in here
        ]
        return True


class MetricsPage:
    """All families of a page; a collector, as prometheus_client has it.

    Args:
        registry: of the server; its names come first.
        before: each copies numbers that the loop owns, as `ModelMetrics.take` does.
    """

    def __init__(self, registry: CollectorRegistry, before: Sequence[Callable[[], None]] = ()) -> None:
        self._registry = registry
        self._before = before
        self._refused = set[str]()

    async def text(self) -> bytes:
        """The page now: numbers are copied on the loop, and written by a thread."""
        for copy in self._before:
            copy()
        return await asyncio.to_thread(render, self)

    def collect(self) -> Iterator[Metric]:
        """Every family; on any thread."""
        others = [_as_metric(family) for family in process_metrics()]
        if not others:  # the usual case: the names are not needed
            yield from self._registry.collect()
            return
        taken = set[str]()
        for metric in self._registry.collect():
            if isinstance(metric, ModelMetric):
                others = [other for other in others if not metric.joins(other)]
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
            add_histogram(metric, dict(sample.labels), sample.bounds, sample.counts, sample.value)
        else:
            metric.add_sample(family.name, dict(sample.labels), sample.value)
    return metric


def add_histogram(
    metric: Metric, labels: dict[str, str], bounds: Iterable[float], counts: Sequence[int], total: float
) -> None:
    """Add a histogram to its family; `counts` has one more than `bounds`, for infinity."""
    metric.add_sample(f"{metric.name}_count", labels, sum(counts))
    metric.add_sample(f"{metric.name}_sum", labels, total)
    for limit, so_far in zip([*map(number_text, bounds), "+Inf"], accumulate(counts), strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": limit}, so_far)
