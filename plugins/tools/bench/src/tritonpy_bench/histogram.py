"""Histograms of durations that can be merged: of constant relative error, whatever the range."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_BITS = 11  # a bucket is at most 1/1024 of its values wide
_HALF = 1 << (_BITS - 1)


class Histogram:
    """Counts of integers from 0 to 2**62, such as nanoseconds.

    Below 2,048 a value has a bucket of its own; above, buckets are at most a thousandth of their values wide.
    The sum, the least and the greatest value are exact. Histograms of parts, merged, equal that of the whole.
    """

    __slots__ = ("_counts", "_greatest", "_least", "_total")

    def __init__(self, values: Iterable[int] | npt.NDArray[np.int64] = ()) -> None:
        self._counts = np.zeros(0, np.int64)  # as many buckets as the greatest value needs
        self._total = 0
        self._least = 1 << 62
        self._greatest = 0
        self.add(values)

    def add(self, values: Iterable[int] | npt.NDArray[np.int64]) -> None:
        """Count each of the values; negative ones count as 0."""
        array = np.maximum(np.fromiter(values, np.int64), 0)
        if not array.size:
            return
        counts = np.bincount(_bucket(array))
        self._grow(counts.size)
        self._counts[: counts.size] += counts
        # In halves: the sum of many large values exceeds 64 bits.
        self._total += (int((array >> 32).sum()) << 32) + int((array & 0xFFFFFFFF).sum())
        self._least = min(self._least, int(array.min()))
        self._greatest = max(self._greatest, int(array.max()))

    def merge(self, other: Histogram) -> None:
        """Count all that another histogram has counted."""
        self._grow(other._counts.size)
        self._counts[: other._counts.size] += other._counts
        self._total += other._total
        self._least = min(self._least, other._least)
        self._greatest = max(self._greatest, other._greatest)

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Self:
        """The histogram of the values of all parts."""
        whole = cls()
        for part in parts:
            whole.merge(part)
        return whole

    @property
    def count(self) -> int:
        """How many values were counted."""
        return int(self._counts.sum())

    @property
    def mean(self) -> float:
        """The mean of the values; 0 if there are none."""
        return self._total / count if (count := self.count) else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the values, to the width of buckets."""
        if not (count := self.count):
            return 0.0
        used = np.flatnonzero(self._counts)
        spread = (_middle(used) - self.mean) ** 2 * self._counts[used]
        return float(np.sqrt(spread.sum() / count))

    @property
    def least(self) -> int:
        """The least of the values; 0 if there are none."""
        return self._least if self.count else 0

    @property
    def greatest(self) -> int:
        """The greatest of the values; 0 if there are none."""
        return self._greatest

    def percentile(self, percent: float) -> float:
        """The value that `percent` of the values do not exceed; 0 if there are none.

        It is the middle of a bucket, and so within a thousandth of that value.
        """
        if not (count := self.count):
            return 0.0
        rank = max(1, int(np.ceil(count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = float(_middle(np.array([bucket]))[0])
        return min(max(middle, float(self._least)), float(self._greatest))

    def bins(self) -> list[tuple[int, int]]:
        """The lower end and the count of each bucket that holds any value, in ascending order."""
        used = np.flatnonzero(self._counts)
        return list(zip(_lower(used).tolist(), self._counts[used].tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        same = (self._total, self._least, self._greatest) == (other._total, other._least, other._greatest)
        return same and self.bins() == other.bins()

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> tuple[Any, ...]:  # Any: few buckets are used, and only those travel
        used = np.flatnonzero(self._counts)
        return used, self._counts[used], self._total, self._least, self._greatest

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        used, counts, self._total, self._least, self._greatest = state
        self._counts = np.zeros(int(used[-1]) + 1 if used.size else 0, np.int64)
        self._counts[used] = counts

    def _grow(self, size: int) -> None:
        if size > self._counts.size:
            self._counts = np.concatenate([self._counts, np.zeros(size - self._counts.size, np.int64)])


def _bucket(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each value: so many bits are dropped that `_BITS` are left."""
    _, exponent = np.frexp(values.astype(np.float64))
    dropped = np.maximum(exponent.astype(np.int64) - _BITS, 0)
    # A value that rounds up to a power of two as a float has one bit less than its exponent says.
    dropped -= (values >> dropped) < _HALF
    dropped = np.maximum(dropped, 0)
    return np.asarray(dropped * _HALF + (values >> dropped), np.int64)


def _lower(buckets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    dropped = np.maximum(buckets // _HALF - 1, 0)
    return np.asarray((buckets - dropped * _HALF) << dropped, np.int64)


def _middle(buckets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    dropped = np.maximum(buckets // _HALF - 1, 0)
    width = np.left_shift(np.int64(1), dropped)
    middle: npt.NDArray[np.float64] = _lower(buckets) + (width - 1) / 2
    return middle
