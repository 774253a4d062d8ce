"""When to stop a trial: its windows say for sure that it is not the best, or that more change nothing.

Windows are compared by one-sided t-tests. A trial is looked at after each window, and a test that is asked
often errs more often than one that is asked once; so the error that is allowed is divided by the number of
looks (Bonferroni), and the confidence that is told is that of all looks together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tritonpy_analyze.goal import Goal
from tritonpy_analyze.measurement import Window

_LEAST_DEVIATION = 0.002
"""Windows that are alike by chance prove nothing finer than this, in logarithms."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a trial ends.

    Attributes:
        is_hopeless: it cannot be the best; otherwise it is known well enough.
        confidence: that this is right, from 0 to 1.
        reason: for people.
    """

    is_hopeless: bool
    confidence: float
    reason: str


@dataclass(frozen=True, slots=True)
class Looks:
    """The rules of stopping.

    Attributes:
        least, most: windows of a trial.
        confidence: that must be reached before it ends early as hopeless.
        precision: half of the interval in which the mean lies with that confidence, at which it is known well
            enough; 0 for never.
    """

    least: int = 2
    most: int = 5
    confidence: float = 0.99
    precision: float = 0.02

    def verdict(self, goal: Goal, windows: Sequence[Window], best: Sequence[Window]) -> Verdict | None:
        """Judge a trial after a window; None to go on.

        Args:
            goal: of the search.
            windows: of the trial so far.
            best: of the best trial so far; empty for none, and only counted if it keeps the constraints.
        """
        if len(windows) < self.least or len(windows) >= self.most:
            return None
        looks = max(1, self.most - self.least)
        if any(not window.rows for window in windows):
            return None
        if best:
            for constraint in goal.bounds:
                excesses = [constraint.excess(window) for window in windows]
                sure = self._sure(mean_above(excesses, 0.0), looks)
                if sure is not None:
                    return Verdict(True, sure, f"misses {constraint}")
            values = [goal.value(window) for window in windows]
            sure = self._sure(mean_above([goal.value(window) for window in best], values), looks)
            if sure is not None:
                behind = 1 - math.exp(fmean(values) - fmean(goal.value(window) for window in best))
                return Verdict(True, sure, f"is {behind:.0%} behind the best")
        if self.precision and len(windows) > 2:
            half = half_interval([goal.value(window) for window in windows], self.confidence)
            if half <= self.precision:
                return Verdict(False, self.confidence, f"is known within ±{half:.1%}")
        return None

    def _sure(self, probability: float, looks: int) -> float | None:
        confidence = 1 - (1 - probability) * looks
        return confidence if confidence >= self.confidence else None


def mean_above(values: Sequence[float], other: Sequence[float] | float) -> float:
    """How sure it is that the mean of one is above the mean of others, or above a number (Welch's t-test)."""
    if isinstance(other, float):
        error = _variance(values) / len(values)
        return student_cdf((fmean(values) - other) / math.sqrt(error), len(values) - 1)
    one, two = _variance(values) / len(values), _variance(other) / len(other)
    freedom = (one + two) ** 2 / (one**2 / max(1, len(values) - 1) + two**2 / max(1, len(other) - 1))
    return student_cdf((fmean(values) - fmean(other)) / math.sqrt(one + two), freedom)


def half_interval(values: Sequence[float], confidence: float) -> float:
    """Half of the two-sided interval of a mean."""
    low, high = 0.0, 1e4
    while high - low > 1e-6 * high:  # the quantile, by bisection: it is asked for a few times a trial
        middle = (low + high) / 2
        if student_cdf(middle, len(values) - 1) < (1 + confidence) / 2:
            low = middle
        else:
            high = middle
    return high * math.sqrt(_variance(values) / len(values))


def _variance(values: Sequence[float]) -> float:
    deviation = stdev(values) if len(values) > 1 else 0.1
    return max(deviation, _LEAST_DEVIATION) ** 2


def student_cdf(t: float, freedom: float) -> float:
    """The probability that Student's t with so many degrees of freedom is below `t`."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = _regularized_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def _regularized_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _regularized_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * fraction / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
