"""The goal of a search: what is wanted of a configuration, and what it must not exceed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tritonpy.errors import InvalidArg

from tritonpy_analyze.measurement import METRICS, Window, check_metric, plain, quantity, shown_quantity


class Score(NamedTuple):
    """How good a measurement is; larger ones are better.

    Attributes:
        within: 0 within all constraints, otherwise less: minus the sum of the logarithms of the factors by
            which they are missed. Compared first.
        value: the sum of weight times logarithm of each metric, so that 0.05 is five percent.
    """

    within: float
    value: float


_IMPLIED = ("failed", "unanswered")

WORST = Score(-math.inf, -math.inf)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound of a metric, in the metric's unit."""

    metric: str
    bound: float
    is_least: bool = False

    def excess(self, window: Window) -> float:
        """The logarithm of the factor by which it is missed; negative within. NaN if nobody knows."""
        value = window.metric(self.metric)
        if value <= 0 or self.bound <= 0:
            distance = value - self.bound
            return -distance if self.is_least else distance
        return math.log(value / self.bound) * (-1 if self.is_least else 1)

    def __str__(self) -> str:
        sign = "≥" if self.is_least else "≤"
        return f"{self.metric} {sign} {shown_quantity(self.bound, self.metric)}"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted.

    Attributes:
        weights: of metrics; more than one makes a compromise, in which ten percent of a metric of weight 2
            count as twenty of one of weight 1.
        constraints: bounds that the best one must keep.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"throughput": 1.0})
    constraints: tuple[Constraint, ...] = ()

    @property
    def bounds(self) -> tuple[Constraint, ...]:
        """The constraints, and those that go without saying: all requests are answered, at their rate."""
        said = {plain(each.metric) for each in self.constraints}
        return (*self.constraints, *(Constraint(name, 0.0) for name in _IMPLIED if name not in said))

    def score(self, window: Window) -> Score:
        """Judge a measurement; one without any success, or with a metric that nobody knows, is the worst."""
        if not window.rows:
            return WORST
        within = 0.0
        for constraint in self.bounds:
            excess = constraint.excess(window)
            if math.isnan(excess):
                raise InvalidArg(f"constraint {constraint}: nothing was measured of it here; leave it out")
            within -= max(0.0, excess)
        return Score(within, self.value(window))

    def value(self, window: Window) -> float:
        """The weighted sum alone.

        Raises:
            InvalidArg: nothing was measured of a metric.
        """
        total = 0.0
        for metric, weight in self.weights.items():
            measured = window.metric(metric)
            if math.isnan(measured):
                raise InvalidArg(f"objective '{metric}': nothing was measured of it here; choose another")
            total += METRICS[plain(metric)] * weight * math.log(max(measured, 1e-9))
        return total

    def __str__(self) -> str:
        wanted = ", ".join(
            metric if len(self.weights) == 1 else f"{metric} × {weight:g}"
            for metric, weight in self.weights.items()
        )
        return f"{wanted} with {', '.join(map(str, self.constraints))}" if self.constraints else wanted


def parse_weights(texts: tuple[str, ...]) -> dict[str, float]:
    """Objectives, each `METRIC` or `METRIC=WEIGHT`, separated by commas or given one by one.

    Raises:
        InvalidArg: no such metric, or a weight that is no positive number.
    """
    weights: dict[str, float] = {}
    for text in (part for each in texts for part in each.split(",")):
        name, _, weight = text.strip().partition("=")
        try:
            weights[check_metric(name)] = float(weight or 1)
        except ValueError:
            weights[name] = math.nan
        if not 0 < weights[name] < math.inf:
            raise InvalidArg(f"objective '{text}': expected a positive number as the weight, got '{weight}'")
    return weights or {"throughput": 1.0}


def parse_constraint(text: str, *, is_least: bool) -> Constraint:
    """A constraint, written `METRIC=VALUE`.

    Raises:
        InvalidArg: no such metric, or no value of it.
    """
    name, equals, value = text.partition("=")
    check_metric(name.strip())
    if not equals:
        raise InvalidArg(f"constraint '{text}': expected METRIC=VALUE, such as latency_p99=20ms")
    return Constraint(name.strip(), quantity(value, name.strip()), is_least)
