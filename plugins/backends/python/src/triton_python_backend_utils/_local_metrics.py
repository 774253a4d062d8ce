"""Metrics where no server is: kept in this process, for the unit tests of a model."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import count

from ._errors import TritonModelException

_FAMILY_NAME = re.compile(r"(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_HISTOGRAM = 2

Labels = tuple[tuple[str, str], ...]


class LocalSeries:
    """The value of a counter or gauge, or the counts of a histogram; kept while its family is held."""

    __slots__ = ("bounds", "counts", "holds", "number", "value")

    def __init__(self, number: int, bounds: list[float]) -> None:
        self.number = number
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.value = 0.0
        self.holds: set[int] = set()


class LocalFamily:
    """All series of one name."""

    __slots__ = ("holds", "kind", "name", "series")

    def __init__(self, name: str, kind: int) -> None:
        self.name = name
        self.kind = kind
        self.holds: set[int] = set()
        self.series: dict[Labels, LocalSeries] = {}


class LocalMetrics:
    """Satisfies `_metrics.Store`; refuses what a server refuses, except names that a server itself uses."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._families: dict[str, LocalFamily] = {}
        self._held: dict[int, LocalFamily] = {}
        self._series: dict[int, LocalSeries] = {}

    def hold(self, name: str, description: str, kind: int) -> tuple[int, str]:
        if not _FAMILY_NAME.fullmatch(name):
            raise TritonModelException(f"Invalid metric name: '{name}'")
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = LocalFamily(name, kind)
        if family.kind != kind:
            raise TritonModelException(f"Family name already exists with different type: '{name}'")
        number = next(self._numbers)
        family.holds.add(number)
        self._held[number] = family
        return number, ""

    def series(
        self, hold: int, labels: dict[str, str], buckets: list[float] | None
    ) -> tuple[int, list[float]]:
        family = self._held[hold]
        for name in labels:
            if not _LABEL_NAME.fullmatch(name) or (name == "le" and family.kind == _HISTOGRAM):
                raise TritonModelException(f"Invalid label name: '{name}'")
        bounds = buckets or []
        if bounds and bounds[-1] == math.inf:
            bounds = bounds[:-1]  # it is there anyway
        if not all(low < high for low, high in zip([-math.inf, *bounds], [*bounds, math.inf])):  # noqa: B905
            raise TritonModelException(f"Bucket Boundaries must be strictly sorted: {bounds}")
        key = tuple(sorted(labels.items()))
        series = family.series.get(key)
        if series is None:
            series = family.series[key] = LocalSeries(next(self._numbers), bounds)
            self._series[series.number] = series
        series.holds.add(hold)
        return series.number, series.bounds

    def add(self, series: int, amount: float) -> None:
        self._series[series].value += amount

    def set(self, series: int, value: float) -> None:
        self._series[series].value = value

    def observe(self, series: int, bounds: Sequence[float], value: float) -> None:
        kept = self._series[series]
        kept.counts[bisect_left(bounds, value)] += 1
        kept.value += value

    def value(self, series: int) -> float:
        return self._series[series].value

    def release(self, hold: int) -> None:
        family = self._held.pop(hold)
        family.holds.discard(hold)
        for key, series in list(family.series.items()):
            series.holds.discard(hold)
            if not series.holds:
                del family.series[key], self._series[series.number]
        if not family.holds:
            del self._families[family.name]
