"""Metrics that are kept by something in this process, and by no server in it.

In a server's process they are read at every scrape; a worker reports them to its server.
"""

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
        set_count: of a gauge, how often it was set to a number instead of being changed by one. It matters
            where several processes have the same labels.
    """

    labels: Mapping[str, str]
    value: float
    bounds: Sequence[float] = ()
    counts: Sequence[int] = ()
    set_count: int = 0


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one name."""

    name: str
    description: str
    kind: MetricKind
    samples: Sequence[MetricSample]


MetricReporter = Callable[[Sequence[MetricFamily]], None]
"""Takes all families of this process as they are now; on any thread, by one call at a time."""

MetricSource = Callable[[], Iterable[MetricFamily]]

_sources: list[MetricSource] = []
_reporters: list[MetricReporter] = []


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


def report_metrics_with(reporter: MetricReporter) -> None:
    """Make this process a worker's, whose metrics are to be handed to `reporter` when they have changed."""
    _reporters.append(reporter)


def metric_reporter() -> MetricReporter | None:
    """What takes the metrics of this process, if it is a worker's; None in a server's, see `add_metrics`."""
    return _reporters[-1] if _reporters else None
