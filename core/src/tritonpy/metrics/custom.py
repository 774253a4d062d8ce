"""Metrics of models: what `pb_utils.MetricFamily` makes in a worker is kept here and scraped with the rest.

A family has no one owner: every family object in any worker *holds* the family of its name, and the series
that it asked for. Workers that use the same name and labels count into the same series. What is no longer
held is gone from the next scrape; a worker that ends, however it ends, holds nothing.

A value outlives a worker only while another one holds its series. So a counter of a model with one instance
begins again at 0 after a restart, as counters do when a program starts again; Prometheus expects that.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

from prometheus_client import CollectorRegistry, Metric

from tritonpy.errors import AlreadyExists, Internal, InvalidArg, TritonError
from tritonpy.metrics.exposition import ModelMetric, add_histogram
from tritonpy.metrics.reported import Owner, ReportedState

_log = logging.getLogger("tritonpy.metrics")

_FAMILY_NAME = re.compile(r"(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_KINDS = ("counter", "gauge", "histogram")
_HISTOGRAM = 2
_SUFFIXES = {_HISTOGRAM: ("_bucket", "_count", "_sum")}

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""


class Series:
    """The value of a counter or gauge, or the counts and the sum of a histogram."""

    __slots__ = ("bounds", "counts", "holds", "labels", "number", "value")

    def __init__(self, number: int, labels: Labels, bounds: list[float]) -> None:
        self.number = number
        self.labels = dict(labels)
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.value = 0.0
        self.holds: set[Hold] = set()


class Family:
    """All series of one name; a collector of its own, so that the registry keeps names apart."""

    def __init__(self, name: str, description: str, kind: int) -> None:
        self.name = name
        self.kind = kind
        self.holds: set[Hold] = set()
        self.series: dict[Labels, Series] = {}
        self._description = description
        self._taken: list[tuple[dict[str, str], Sequence[float], Sequence[int], float]] = []

    def take(self) -> None:
        """Copy the values; on the loop, before `collect` runs on a thread."""
        self._taken = [
            (series.labels, series.bounds, tuple(series.counts), series.value)
            for series in self.series.values()
        ]

    def describe(self) -> Iterator[Metric]:
        """Every name that the family's lines begin with; the registry refuses one that is taken."""
        for suffix in ("", *_SUFFIXES.get(self.kind, ())):
            yield Metric(self.name + suffix, "", "unknown")

    def collect(self) -> Iterator[Metric]:
        """The copies; on any thread."""
        metric = ModelMetric(self.name, self._description, _KINDS[self.kind])
        for labels, bounds, counts, value in self._taken:
            if self.kind == _HISTOGRAM:
                add_histogram(metric, labels, bounds, counts, value)
            else:
                metric.add_sample(self.name, labels, value)
        yield metric


class Hold:
    """One family object's share in a family and in its series."""

    __slots__ = ("family", "owner", "series")

    def __init__(self, family: Family, owner: Owner) -> None:
        self.family = family
        self.owner = owner
        self.series: set[Series] = set()


class CustomMetrics:
    """Keeps the families that models make; the subject `metrics` of the workers' services, on the loop.

    Args:
        registry: the server's own; its names are refused.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._numbers = count(1)
        self._families: dict[str, Family] = {}
        self._holds: dict[int, Hold] = {}
        self._series: dict[int, Series] = {}
        self._by_owner: dict[Owner, set[int]] = {}
        self._states: dict[Owner, ReportedState] = {}

    async def ask(self, caller: Owner, what: str, args: tuple[Any, ...]) -> Any:  # Any: plain values
        """Answer `hold`, `series` or `value`; see `tritonpy.workers.worker_services.Subject`.

        Raises:
            TritonError: refused, in Triton's words.
        """
        try:
            if what == "hold":
                return self.hold(caller, *args), caller.instance
            if what == "series":
                return self.join(*args)
            if what == "value":
                return self._series[args[0]].value
        except TritonError as exc:
            text = f"Failed to process the request for model '{caller.instance}', message: {exc.message}"
            raise TritonError(text, exc.code) from exc
        except (KeyError, TypeError, ValueError) as exc:
            raise Internal(f"instance '{caller.instance}' asked for metrics.{what}{args}: {exc!r}") from exc
        raise Internal(f"instance '{caller.instance}' asked for 'metrics.{what}', which does not exist")

    def tell(self, caller: Owner, what: str, args: tuple[Any, ...]) -> None:  # Any: plain values
        """Take `change`, `release` or `state`; see `tritonpy.workers.worker_services.Subject`."""
        try:
            if what == "change":
                for change in args[0]:
                    self.change(*change)
            elif what == "release":
                self.release(caller, args[0])
            elif what == "state":
                self._states.setdefault(caller, ReportedState(self, caller)).take(args[0])
            else:
                raise KeyError(what)
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            _log.warning("instance '%s' told of 'metrics.%s' in vain: %r", caller.instance, what, exc)

    def caller_gone(self, caller: Owner) -> None:
        """The worker has ended: release what it held."""
        self._states.pop(caller, None)
        for number in self._by_owner.pop(caller, ()):
            self._release(number)

    def take(self) -> None:
        """Copy all values; on the loop, before the registry is collected on a thread."""
        for family in self._families.values():
            family.take()

    def series_of(self, name: str) -> list[tuple[Labels, float]]:
        """Labels and values of one family, none if there is no counter or gauge of that name; on the loop."""
        family = self._families.get(name)
        if family is None or family.kind == _HISTOGRAM:
            return []
        return [(tuple(series.labels.items()), series.value) for series in family.series.values()]

    def hold(self, caller: Owner, name: str, description: str, kind: int) -> int:
        """Make a family object, and the family if there is none of the name; returns the object's number.

        Raises:
            TritonError: the name cannot be, or is another's.
        """
        if not _FAMILY_NAME.fullmatch(name):
            raise InvalidArg(f"Invalid metric name: '{name}'")
        family = self._families.get(name)
        if family is None:
            family = Family(name, _printable(description), kind)
            self._register(family)
            self._families[name] = family
        elif family.kind != kind:
            raise InvalidArg(
                f"Family name already exists with different type: '{name}' is a {_KINDS[family.kind]}"
            )
        number = next(self._numbers)
        hold = self._holds[number] = Hold(family, caller)
        family.holds.add(hold)
        self._by_owner.setdefault(caller, set()).add(number)
        return number

    def _register(self, family: Family) -> None:
        try:
            self._registry.register(family)
        except ValueError:
            names = {metric.name for metric in family.describe()}
            rivals = [
                f"'{other.name}'"
                for other in self._families.values()
                if not names.isdisjoint(metric.name for metric in other.describe())
            ]
            whose = f"family {rivals[0]} of a model" if rivals else "the server itself"
            raise AlreadyExists(
                f"Family name already exists: '{family.name}' or a name made from it is used by {whose}; "
                f"choose another"
            ) from None

    def join(
        self, number: int, labels: Mapping[str, str], buckets: list[float] | None
    ) -> tuple[int, list[float]]:
        """Let a family object hold the series with these labels; returns its number and its buckets.

        Raises:
            InvalidArg: a label or the buckets cannot be.
        """
        hold = self._holds[number]
        family = hold.family
        for name in labels:
            if not _LABEL_NAME.fullmatch(name) or (name == "le" and family.kind == _HISTOGRAM):
                raise InvalidArg(f"Invalid label name: '{name}'")
        key = tuple(sorted((name, _printable(value)) for name, value in labels.items()))
        series = family.series.get(key)
        bounds = _checked_bounds(buckets or [])
        if series is None:
            series = Series(next(self._numbers), key, bounds)
            family.series[key] = self._series[series.number] = series
        series.holds.add(hold)
        hold.series.add(series)
        return series.number, series.bounds

    def change(self, number: int, change: bool | list[int], value: float) -> None:
        """Change a series: set it (True), add to it (False), or add counts of buckets and their sum."""
        series = self._series[number]
        if isinstance(change, list):
            series.counts = [old + new for old, new in zip(series.counts, change, strict=True)]
            series.value += value
        elif change:
            series.value = value
        else:
            series.value += value

    def leave(self, number: int, series_number: int) -> None:
        """Let a family object hold a series no longer."""
        self._leave(self._holds[number], self._series[series_number])

    def release(self, caller: Owner, number: int) -> None:
        """Let go of a family object and what it holds."""
        self._by_owner[caller].remove(number)
        self._release(number)

    def _leave(self, hold: Hold, series: Series) -> None:
        hold.series.remove(series)
        series.holds.remove(hold)
        if not series.holds:
            del hold.family.series[tuple(series.labels.items())], self._series[series.number]

    def _release(self, number: int) -> None:
        hold = self._holds.pop(number)
        family = hold.family
        for series in tuple(hold.series):
            self._leave(hold, series)
        family.holds.remove(hold)
        if not family.holds:
            del self._families[family.name]
            self._registry.unregister(family)


def _checked_bounds(bounds: list[float]) -> list[float]:
    if bounds and bounds[-1] == math.inf:
        bounds = bounds[:-1]  # it is there anyway
    if not all(low < high for low, high in pairwise((-math.inf, *bounds, math.inf))):
        raise InvalidArg(f"Bucket Boundaries must be strictly sorted: {bounds}")
    return bounds


def _printable(text: str) -> str:
    """The text with halves of surrogate pairs escaped: they cannot be encoded in the page."""
    return text.encode("utf-8", "backslashreplace").decode()
