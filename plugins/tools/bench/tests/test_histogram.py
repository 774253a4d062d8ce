"""Histograms are as exact as they say, and merge without loss."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy_bench import Histogram

durations = st.lists(st.one_of(st.integers(0, 5000), st.integers(0, 1 << 62)), max_size=50)


@given(durations, durations, durations)
def test_merged_parts_are_the_whole(one: list[int], two: list[int], three: list[int]) -> None:
    parts = [Histogram(one), Histogram(two), Histogram(three)]

    assert Histogram.merged(parts) == Histogram(one + two + three)
    assert Histogram.merged(reversed(parts)) == Histogram.merged(parts)


@given(durations)
def test_a_histogram_that_was_sent_to_another_process_is_the_same(values: list[int]) -> None:
    assert pickle.loads(pickle.dumps(Histogram(values))) == Histogram(values)


@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=50), st.floats(0.1, 100))
def test_percentiles_are_within_a_thousandth(values: list[int], percent: float) -> None:
    ranked = sorted(values)
    rank = max(1, -(-len(values) * percent // 100))
    exact = ranked[min(int(rank), len(values)) - 1]

    assert Histogram(values).percentile(percent) == pytest.approx(exact, rel=1 / 1000, abs=0.5)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50))
def test_count_mean_and_ends_are_exact(values: list[int]) -> None:
    histogram = Histogram(values)

    assert (histogram.count, histogram.least, histogram.greatest) == (len(values), min(values), max(values))
    assert histogram.mean == pytest.approx(sum(values) / len(values))
    assert sum(count for _, count in histogram.bins()) == len(values)


@pytest.mark.parametrize("power", range(1, 62))
def test_values_at_powers_of_two_lie_in_the_bucket_that_begins_there(power: int) -> None:
    value = 1 << power

    assert Histogram([value]).bins() == [(value, 1)]
    assert Histogram([value - 1]).bins()[0][0] <= value - 1


def test_an_empty_histogram_has_zeros() -> None:
    empty = Histogram()

    assert (empty.count, empty.mean, empty.deviation, empty.least, empty.greatest) == (0, 0, 0, 0, 0)
    assert (empty.percentile(99), empty.bins()) == (0, [])


def test_the_deviation_is_that_of_the_values() -> None:
    assert Histogram([1000, 2000, 3000]).deviation == pytest.approx(816.5, rel=0.002)
