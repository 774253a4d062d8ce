"""Trials end early where that is right, and hardly ever where it is not."""

from __future__ import annotations

import random

import pytest
from tritonpy_analyze.goal import Constraint, Goal
from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measurement import Window
from tritonpy_analyze.stopping import Looks, mean_above, student_cdf

GOAL = Goal({"throughput": 1.0}, (Constraint("latency_p99", 10_000),))


def windows(*rates: float, latency_us: float = 5000) -> list[Window]:
    return [Window(1.0, round(rate), latency=Histogram.of([latency_us] * 100)) for rate in rates]


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [
        (0.0, 3, 0.5),
        (6.314, 1, 0.95),
        (2.920, 2, 0.95),
        (-2.015, 5, 0.05),
        (2.764, 10, 0.99),
        (1.6449, 1e6, 0.95),
    ],
)
def test_the_distribution_is_that_of_the_tables(t: float, freedom: float, expected: float) -> None:
    assert student_cdf(t, freedom) == pytest.approx(expected, abs=5e-4)


def test_a_point_far_behind_is_given_up_and_it_is_said_how_sure_that_is() -> None:
    verdict = Looks().verdict(GOAL, windows(500, 505), windows(1000, 1010, 990, 1005))

    assert verdict is not None
    assert verdict.is_hopeless
    assert verdict.reason == "is 50% behind the best"
    assert 0.99 <= verdict.confidence <= 1


def test_a_point_that_misses_a_constraint_for_sure_is_given_up_where_another_keeps_it() -> None:
    slow = windows(2000, 2000, latency_us=20_000)

    verdict = Looks().verdict(GOAL, slow, windows(1000, 1010))

    assert verdict is not None
    assert (verdict.is_hopeless, verdict.reason) == (True, "misses latency_p99 ≤ 10 ms")
    assert Looks().verdict(GOAL, slow, []) is None


@pytest.mark.parametrize(
    ("tried", "best", "why"),
    [
        ((500.0,), (1000.0, 1010.0), "one window says nothing"),
        ((500.0, 1300.0), (1000.0, 1010.0), "its windows differ much"),
        ((990.0, 1010.0), (1000.0, 1005.0), "it is as good"),
        ((500.0, 500.0), (), "there is nothing to compare it with"),
    ],
)
def test_other_points_go_on(tried: tuple[float, ...], best: tuple[float, ...], why: str) -> None:
    assert Looks(precision=0).verdict(GOAL, windows(*tried), windows(*best)) is None, why


def test_a_point_whose_windows_agree_is_known_well_enough() -> None:
    verdict = Looks().verdict(GOAL, windows(1000, 1001, 999), [])

    assert verdict is not None
    assert not verdict.is_hopeless
    assert verdict.reason.startswith("is known within ±")


def test_equal_points_are_hardly_ever_called_hopeless() -> None:
    """Of 600 equal pairs about as few as the error that is allowed (1 %)."""
    chance = random.Random(1)
    looks, wrong = Looks(precision=0), 0
    for _ in range(600):
        best = windows(*(chance.gauss(1000, 60) for _ in range(5)))
        tried = windows(*(chance.gauss(1000, 60) for _ in range(4)))
        verdicts = [looks.verdict(GOAL, tried[:count], best) for count in range(2, 5)]
        wrong += any(verdict is not None for verdict in verdicts)

    assert wrong <= 14


def test_a_mean_is_above_another_as_sure_as_it_is_below_from_the_other_side() -> None:
    one, two = [1.0, 1.1, 0.9], [1.2, 1.0, 1.3, 1.1]

    assert mean_above(one, two) == pytest.approx(1 - mean_above(two, one))
