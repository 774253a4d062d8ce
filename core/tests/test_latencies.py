"""Quantiles and buckets, in numbers."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.latencies import QUEUE, REQUEST, Histogram, Latencies, Summary

SECOND = 1_000_000_000
durations = st.lists(st.integers(0, 100_000_000), min_size=1, max_size=200)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def exact(values: list[int], quantile: float) -> int:
    """The least of them that as large a part of them does not exceed."""
    return sorted(values)[max(0, math.ceil(quantile * len(values)) - 1)]


@given(durations, st.floats(0, 1))
def test_a_quantile_is_one_of_the_durations_but_for_a_fifth_of_a_percent(
    values: list[int], quantile: float
) -> None:
    summary = Summary()
    for value in values:
        summary.add(value)

    [found] = summary.quantiles([quantile])

    wanted = exact(values, quantile)
    assert wanted * 0.998 <= found <= wanted


@given(durations, st.lists(st.floats(0, 1), max_size=5))
def test_quantiles_come_in_the_order_in_which_they_were_asked_for(
    values: list[int], wanted: list[float]
) -> None:
    summary = Summary()
    for value in values:
        summary.add(value)

    assert summary.quantiles(wanted) == [summary.quantiles([one])[0] for one in wanted]


def test_short_durations_are_kept_as_they_are() -> None:
    summary = Summary()
    for value in range(1001):
        summary.add(value)

    assert summary.quantiles([0.0, 0.5, 0.999, 1.0]) == [0, 500, 999, 1000]
    assert (summary.count, summary.sum_us) == (1001, 500_500)


def test_requests_of_a_batch_are_added_at_once() -> None:
    one, other = Summary(), Summary()
    for _ in range(7):
        one.add(3_000)
    other.add(3_000, 7)

    assert (one.count, one.sum_us) == (other.count, other.sum_us) == (7, 21_000)
    assert one.quantiles([0.9]) == other.quantiles([0.9])


def test_quantiles_of_nothing_are_no_numbers() -> None:
    assert all(map(math.isnan, Summary().quantiles([0.5, 0.99])))


@pytest.mark.parametrize(
    ("age_s", "is_seen"), [(0, True), (11, True), (47, True), (61, False), (1000, False), (10**6, False)]
)
def test_quantiles_are_of_the_last_minute_and_sums_of_all_time(age_s: int, is_seen: bool) -> None:
    clock = Clock()
    latencies = Latencies((REQUEST,), clock=clock)
    clock.now_ns = 7 * SECOND  # in the middle of a slice
    latencies.add(REQUEST, 1_000_000)
    clock.now_ns += age_s * SECOND
    latencies.add(REQUEST, 5_000_000)

    summary = latencies.snapshot().summaries[REQUEST]

    assert summary.quantiles([0.0, 1.0]) == ([1000, 5000] if is_seen else [5000, 5000])
    assert (summary.count, summary.sum_us) == (2, 6_000)


def test_an_idle_model_forgets_too() -> None:
    clock = Clock()
    latencies = Latencies((REQUEST,), clock=clock)
    latencies.add(REQUEST, 1_000_000)
    assert latencies.snapshot().summaries[REQUEST].quantiles([0.5]) == [1000]

    clock.now_ns += 61 * SECOND

    assert math.isnan(latencies.snapshot().summaries[REQUEST].quantiles([0.5])[0])


def test_a_copy_does_not_change() -> None:
    latencies = Latencies((REQUEST, QUEUE), Histogram((1.0, 2.0)))
    latencies.add(REQUEST, 1_000_000)
    copy = latencies.snapshot()

    latencies.add_each(REQUEST, [9_000_000] * 10)
    assert latencies.first_response is not None
    latencies.first_response.add(1.5)

    assert copy.summaries[REQUEST].quantiles([1.0]) == [1000]
    assert copy.first_response is not None
    assert copy.first_response.counts == [0, 0, 0]


def test_what_is_not_kept_is_passed_over() -> None:
    latencies = Latencies((QUEUE,))

    latencies.add(REQUEST, 1_000)
    latencies.add_each(REQUEST, [1_000])

    assert list(latencies.summaries) == [QUEUE]


def test_memory_is_bounded_by_how_different_durations_are() -> None:
    numbers = random.Random(1)
    summary = Summary()
    for _ in range(50_000):
        summary.add(numbers.randrange(1_000, 2_000_000))

    assert len(summary._latest) < 6_500


@pytest.mark.parametrize(
    ("value_ms", "counts"), [(0, [1, 0, 0]), (1, [1, 0, 0]), (1.5, [0, 1, 0]), (2, [0, 1, 0]), (3, [0, 0, 1])]
)
def test_a_bucket_has_what_does_not_exceed_its_bound(value_ms: float, counts: list[int]) -> None:
    histogram = Histogram((1.0, 2.0))

    histogram.add(value_ms)

    assert (histogram.counts, histogram.sum_ms) == (counts, value_ms)
