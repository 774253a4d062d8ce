"""Metrics that are kept by something in this process, and by no server in it: read at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricSample:
    """The value of a metric for one set of labels.

    Attributes:
        labels: values by name.
        value: the number; of a histogram, the sum of what was observed.
        bounds: of a histogram, the upper bounds of its buckets, ascending, without the one for all.
        counts: of a histogram, how much was observed in each bucket, and beyond the last bound.
    """

    labels: Mapping[str, str]
    value: float
    bounds: Sequence[float] = ()
    counts: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one name."""

    name: str
    description: str
    kind: MetricKind
    samples: Sequence[MetricSample]


MetricSource = Callable[[], Iterable[MetricFamily]]

_sources: list[MetricSource] = []


def add_metrics(source: MetricSource) -> None:
    """Show what `source` gives on the metrics port of every server in this process, while it lives.

    It is called on threads, also several at once. A family whose name is taken by one of the server's own or
    of its models is left out.
    """
    _sources.append(source)


def process_metrics() -> Iterator[MetricFamily]:
    """Every family of all sources."""
    for source in _sources:
        yield from source()
