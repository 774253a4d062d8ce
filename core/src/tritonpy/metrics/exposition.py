"""The Prometheus text format, under exactly the names that the families have, and in Triton's order.

`prometheus_client.generate_latest` appends `_total` to every counter it prints. Triton's counters have no
such suffix, and dashboards look for Triton's names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.samples import Sample

_KINDS = ("counter", "gauge", "histogram", "summary")
"""Families of one kind stand together."""

_LAST_LABELS = ("le", "quantile")
"""Say which part of a family a line is, behind the labels that say whose."""


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
