"""Metrics that a worker keeps for itself and reports as a whole: they become changes of shared series."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tritonpy.errors import TritonError

_log = logging.getLogger("tritonpy.metrics")

_KINDS = ("counter", "gauge", "histogram")
_HISTOGRAM = 2

_Labels = tuple[tuple[str, str], ...]
_Sample = tuple[Mapping[str, str], float, list[float], list[int], int]
"""Labels, value, bounds, counts, and how often it was set."""


class Owner(Protocol):
    """The worker that asks; `tritonpy.workers.worker_services.Caller`."""

    @property
    def instance(self) -> str:
        """The name of its instance."""


class Keeper(Protocol):
    """The families and series of all workers; `tritonpy.metrics.custom.CustomMetrics`."""

    def hold(self, caller: Owner, name: str, description: str, kind: int) -> int:
        """Make a family object."""

    def release(self, caller: Owner, number: int) -> None:
        """Let go of it."""

    def join(
        self, number: int, labels: Mapping[str, str], buckets: list[float] | None
    ) -> tuple[int, list[float]]:
        """Let it hold a series."""

    def leave(self, number: int, series_number: int) -> None:
        """Let it hold a series no longer."""

    def change(self, number: int, change: bool | list[int], value: float) -> None:
        """Change a series."""


@dataclass(slots=True)
class _Series:
    number: int
    has_same_bounds: bool
    counts: list[int]
    value: float = 0.0
    set_count: int = 0


@dataclass(slots=True)
class _Family:
    number: int
    kind: int
    series: dict[_Labels, _Series] = field(default_factory=dict)


class ReportedState:
    """What one worker reported last; on the loop.

    Workers that have the same name and labels count into the same series, as if they were one process: what
    each has added since its last report is added, and a gauge that one of them has set has that number. A
    histogram has the buckets of the worker that made it; others have to have the same to be counted.

    Args:
        keeper: of all workers' series.
        caller: the worker.
    """

    def __init__(self, keeper: Keeper, caller: Owner) -> None:
        self._keeper = keeper
        self._caller = caller
        self._families: dict[str, _Family] = {}
        self._refused = set[str]()

    def take(self, reported: Sequence[tuple[str, str, str, Sequence[_Sample]]]) -> None:
        """Take all families of the worker: name, description, kind and samples each.

        One whose name another has is left out, with one line in the log.
        """
        names = {name for name, _, _, _ in reported}
        for name in self._families.keys() - names:
            self._keeper.release(self._caller, self._families.pop(name).number)
        for name, description, kind, samples in reported:
            try:
                self._take_family(name, description, _KINDS.index(kind), samples)
            except TritonError as exc:
                if name not in self._refused:
                    self._refused.add(name)
                    _log.warning("metrics of instance '%s' are not shown: %s", self._caller.instance, exc)

    def _take_family(self, name: str, description: str, kind: int, samples: Sequence[_Sample]) -> None:
        family = self._families.get(name)
        if family is not None and family.kind != kind:  # made anew
            self._keeper.release(self._caller, self._families.pop(name).number)
            family = None
        if family is None:
            number = self._keeper.hold(self._caller, name, description, kind)
            family = self._families[name] = _Family(number, kind)
        known = {tuple(sorted(sample[0].items())): sample for sample in samples}
        for gone in family.series.keys() - known.keys():
            self._keeper.leave(family.number, family.series.pop(gone).number)
        for labels, (_, value, bounds, counts, set_count) in known.items():
            self._take_sample(family, labels, value, bounds, counts, set_count)

    def _take_sample(
        self,
        family: _Family,
        labels: _Labels,
        value: float,
        bounds: list[float],
        counts: list[int],
        set_count: int,
    ) -> None:
        series = family.series.get(labels)
        if series is None:
            number, shared = self._keeper.join(family.number, dict(labels), bounds or None)
            series = family.series[labels] = _Series(number, shared == bounds, [0] * len(counts))
        if family.kind == _HISTOGRAM:
            if series.has_same_bounds and counts != series.counts:
                added = [now - before for now, before in zip(counts, series.counts, strict=True)]
                self._keeper.change(series.number, added, value - series.value)
                series.counts = counts
        elif set_count != series.set_count:
            self._keeper.change(series.number, True, value)
        elif value != series.value:
            self._keeper.change(series.number, False, value - series.value)
        series.value, series.set_count = value, set_count
