"""Histogram of durations that can be merged: buckets of one percent, so quantiles are within half of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_GROWTH = math.log(1.01)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations in microseconds.

    Attributes:
        counts: by bucket; bucket `k` holds what rounds to `1.01 ** k` µs.
        sum_us: of all of them, exactly.
    """

    counts: Mapping[int, int] = field(default_factory=dict)
    sum_us: float = 0.0

    @classmethod
    def of(cls, durations_us: Iterable[float]) -> Histogram:
        """The histogram of durations; those below 1 µs count as 1 µs in quantiles."""
        listed = list(durations_us)
        return cls.weighted(((duration_us, 1) for duration_us in listed), sum(listed))

    @classmethod
    def weighted(cls, durations_us: Iterable[tuple[float, int]], sum_us: float) -> Histogram:
        """The histogram of durations, each with how often it came, and their sum."""
        counts: Counter[int] = Counter()
        for duration_us, count in durations_us:
            counts[round(math.log(max(1.0, duration_us)) / _GROWTH)] += count
        return cls(dict(counts), sum_us)

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts.values())

    @property
    def mean_us(self) -> float:
        """Their mean, NaN of none."""
        return self.sum_us / self.count if self.counts else math.nan

    def quantile_us(self, part: float) -> float:
        """The duration that this part of 1 does not exceed; NaN of none."""
        wanted = part * self.count
        so_far = 0
        for bucket in sorted(self.counts):
            so_far += self.counts[bucket]
            if so_far >= wanted:
                return math.exp(bucket * _GROWTH)
        return math.nan

    def __add__(self, other: Histogram) -> Histogram:
        merged = Counter(self.counts)
        merged.update(other.counts)
        return Histogram(dict(merged), self.sum_us + other.sum_us)
