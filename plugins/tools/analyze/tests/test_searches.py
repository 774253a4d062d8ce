"""On cases whose best point is known, searches find a good one in a quarter of all points."""

from __future__ import annotations

import math

import pytest
from tritonpy_analyze import searches
from tritonpy_analyze.analysis import Analyzer
from tritonpy_analyze.cases import Case, cases
from tritonpy_analyze.goal import Score
from tritonpy_analyze.searches import Search, quarter_of
from tritonpy_analyze.space import Dimension, Point, Space
from tritonpy_analyze.stopping import Looks

ONE_WINDOW = Looks(least=1, most=1)


def search_of(case: Case, name: str) -> Search:
    begin = case.space.point(case.start)
    search: Search = getattr(searches, name)(case.space, begin, quarter_of(case.space))
    return search


@pytest.mark.parametrize(
    ("case", "name"),
    [
        *((case, "quick") for case in cases()),
        (cases()[0], "optuna"),
        *(pytest.param(case, "optuna", marks=pytest.mark.stress) for case in cases()[1:]),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_point_within_five_percent_of_the_best_is_found_in_a_quarter_of_the_trials(
    case: Case, name: str
) -> None:
    if name == "optuna":
        pytest.importorskip("optuna")
    analysis = Analyzer(case.space, case.goal, case.server, looks=ONE_WINDOW).run(search_of(case, name))

    assert analysis.best is not None
    assert analysis.best.is_within
    assert -1e-9 <= case.shortfall(analysis.best.score.value) <= 0.05
    assert len(analysis.trials) <= quarter_of(case.space)


@pytest.mark.stress
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_best_that_a_case_names_is_the_best_of_all_points(case: Case) -> None:
    analysis = Analyzer(case.space, case.goal, case.server, looks=ONE_WINDOW).run(searches.brute(case.space))

    assert analysis.best is not None
    assert len(analysis.trials) == case.space.size
    assert analysis.best.score == Score(0, pytest.approx(case.best))


def drive(search: Search, height: dict[Point, float]) -> list[Point]:
    """The different points that a search asks for, in order."""
    asked: dict[Point, None] = {}
    try:
        point = next(search)
        while True:
            asked[point] = None
            point = search.send(Score(0, height[point]))
    except StopIteration:
        return list(asked)


def space(*counts: int) -> Space:
    return Space(Dimension(f"m.{index}", tuple(range(count))) for index, count in enumerate(counts))


def test_brute_tries_every_point_once() -> None:
    points = drive(searches.brute(space(3, 1, 2)), dict.fromkeys(space(3, 1, 2).points(), 0.0))

    assert points == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)]


@pytest.mark.parametrize("counts", [(1,), (7,), (5, 6, 4), (2, 2, 2, 2)])
def test_quick_reaches_the_top_of_a_hill_and_tries_no_more_points_than_it_may(
    counts: tuple[int, ...],
) -> None:
    where = space(*counts)
    top = tuple(count * 2 // 3 for count in counts)
    height = {p: -sum((a - b) ** 2 for a, b in zip(p, top, strict=True)) / 10 for p in where.points()}
    trials = max(6, where.size // 2)

    points = drive(searches.quick(where, (0,) * len(counts), trials), height)

    assert top in points
    assert len(points) <= trials
    assert points[0] == (0,) * len(counts)


def test_quick_finds_a_summit_that_a_valley_parts_from_the_start() -> None:
    where = space(16, 8)
    height = {p: -abs(p[0] - 2) / 8 for p in where.points()}
    height |= {p: 1 - math.dist(p, (14, 6)) / 4 for p in where.points() if math.dist(p, (14, 6)) < 4}

    points = drive(searches.quick(where, (0, 0), 48), height)

    assert (14, 6) in points


def test_quick_is_the_same_each_time_and_differs_by_its_seed() -> None:
    where = space(9, 9, 9)
    height = {p: math.sin(p[0]) + math.cos(p[1] * 2) + p[2] / 9 for p in where.points()}

    one, same, other = (drive(searches.quick(where, (4, 4, 4), 40, seed=seed), height) for seed in (1, 1, 2))

    assert one == same
    assert one != other
