"""Searches: which point to try next, given how good those before were. No clocks, no servers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from tritonpy.errors import Unavailable

from tritonpy_analyze.goal import Score
from tritonpy_analyze.space import Point, Space

_MOST_CANDIDATES = 4096
"""Places that are weighed for the beginning of a climb."""
_PROMISES = 4
"""One of so many climbs begins anywhere, whatever is promised there."""
_MOST_VAIN = 12
"""Times the number of dimensions: so many places may bring nothing before the search ends."""
_REACH = 0.25
"""How far a score tells of its neighbourhood; the whole of a dimension is 1."""

_NOISE = 1e-3
"""Of a score, as a part of the variance of all."""

_Array = npt.NDArray[np.float64]

Search = Generator[Point, Score, None]
"""Yields points to try, and is sent their scores; it may yield a point again, which costs nothing."""


def quarter_of(space: Space) -> int:
    """A quarter of all points, and one at least: the trials in which `quick` is to find a good one."""
    return max(1, space.size // 4)


def brute(space: Space) -> Search:
    """Every point."""
    yield from space.points()


def quick(space: Space, start: Point, trials: int, *, seed: int = 0) -> Search:
    """Climb to the top from several places.

    First come the start, the ends and the middle of the space, because settings that only pay together (large
    batches, and requests enough to fill them) have no way up that is made of single steps. Then the best of
    them is climbed from: along each dimension in turn, by longer steps as long as it gets better. Then from
    the place where what was seen promises most, and now and then from anywhere, as long as there are trials
    left and they bring something.

    Args:
        space: where.
        start: what the configuration has now.
        trials: the most different points that are tried.
        seed: of the order of dimensions; the same one gives the same search.
    """
    climber = _Climber(space, trials, random.Random(seed))
    yield from climber.climb_all(start)


class _Climber:
    """What a climb knows: the scores of points, and how many more it may try."""

    def __init__(self, space: Space, trials: int, order: random.Random) -> None:
        self._counts = [len(dimension.values) for dimension in space.dimensions]
        self._size = space.size
        self._left = trials
        self._order = order
        self._scores: dict[Point, Score] = {}
        self._points = list(space.points()) if space.size <= _MOST_CANDIDATES else []
        self._landscape = Landscape(self._counts)
        self._climbed: list[Point] = []  # where climbs have begun

    def climb_all(self, start: Point) -> Search:
        for point in self._first(start):
            yield from self._try(point)
        vain = 0  # places tried since it last got better
        while self._left > 0 and len(self._scores) < self._size and vain < _MOST_VAIN * len(self._counts):
            before = max(self._scores.values())
            begin = self._next_start()
            self._climbed.append(begin)
            score = yield from self._try(begin)
            if score is not None and score >= before:
                yield from self._climb(begin)
            vain = 0 if max(self._scores.values()) > before else vain + 1

    def _first(self, start: Point) -> Iterator[Point]:
        yield start
        yield tuple((count - 1) // 2 for count in self._counts)
        yield tuple(count - 1 for count in self._counts)
        yield tuple((3 * (count - 1) + 2) // 4 for count in self._counts)

    def _try(self, point: Point) -> Generator[Point, Score, Score | None]:
        """Learn the score of a point; None where no trial is left for it."""
        if point not in self._scores:
            if self._left <= 0:
                return None
            self._left -= 1
            self._scores[point] = yield point
        return self._scores[point]

    def _climb(self, here: Point) -> Search:
        """Go up until no dimension alone leads higher."""
        axes = list(range(len(self._counts)))
        while self._left > 0:
            began = here
            self._order.shuffle(axes)
            for axis in axes:
                for sign in (1, -1):
                    reached = yield from self._along(here, axis, sign)
                    if reached != here:
                        here = reached
                        break
            if here == began:
                return

    def _along(self, here: Point, axis: int, sign: int) -> Generator[Point, Score, Point]:
        """Go on in a direction by one, two, four, … as long as that is better."""
        length = 1
        while True:
            there = self._moved(here, axis, sign * length)
            if there is None and length > 1:
                length, there = 1, self._moved(here, axis, sign)
            if there is None:
                return here
            score = yield from self._try(there)
            if score is None or score <= self._scores[here]:
                if length == 1:
                    return here
                length = 1
                continue
            here, length = there, length * 2

    def _moved(self, here: Point, axis: int, by: int) -> Point | None:
        index = here[axis] + by
        return (*here[:axis], index, *here[axis + 1 :]) if 0 <= index < self._counts[axis] else None

    def _next_start(self) -> Point:
        """At first the best that was seen; then in turn the most promising place, and the least known one."""
        if not self._climbed:
            return max(self._scores, key=lambda point: self._scores[point])
        if self._size <= _MOST_CANDIDATES:
            candidates = [point for point in self._points if point not in self._scores]
        else:
            drawn = (tuple(map(self._order.randrange, self._counts)) for _ in range(_MOST_CANDIDATES))
            candidates = [point for point in sorted(set(drawn)) if point not in self._scores]
        if len(self._climbed) % _PROMISES == 0:
            return candidates[self._order.randrange(len(candidates))]
        return self._landscape.promising(candidates, self._scores)


class Landscape:
    """What scores tell of the places around them: a Gaussian process, whose matrix grows point by point.

    No routine of BLAS is called. On a machine that is busy with trials, its threads wait for each other far
    longer than they work.

    Args:
        counts: values of each dimension.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._widths = np.maximum(1, np.array(counts) - 1)
        self._seen = np.empty((0, len(counts)))
        self._inverse = np.empty((0, 0))

    def promising(self, candidates: Sequence[Point], scores: Mapping[Point, Score]) -> Point:
        """The place of which most can be hoped: the largest expected improvement.

        Args:
            candidates: places that were not tried.
            scores: of those that were, in the same order each time.
        """
        for point in list(scores)[len(self._seen) :]:
            self._add(np.array(point) / self._widths)
        best = max(scores.values())
        heights = np.array([_height(score, best) for score in scores.values()])
        scale = max(float(heights.std()), 1e-6)
        towards = _alike(np.array(candidates) / self._widths, self._seen)
        weights = np.einsum("ij,jk->ik", towards, self._inverse)
        mean = heights.mean() + np.einsum("ij,j->i", weights, heights - heights.mean())
        spread = scale * np.sqrt(np.maximum(1e-12, 1 - (weights * towards).sum(axis=1)))
        ahead = (mean - heights.max()) / spread
        normal = np.exp(-ahead * ahead / 2) / math.sqrt(2 * math.pi)
        below = np.array([(1 + math.erf(each / math.sqrt(2))) / 2 for each in ahead])
        return candidates[int(np.argmax(spread * (ahead * below + normal)))]

    def _add(self, place: _Array) -> None:
        """Take another point in: the inverse of a matrix with one more row and column."""
        count = len(self._seen)
        near = _alike(place[None, :], self._seen)[0]
        turned = np.einsum("ij,j->i", self._inverse, near)
        left = 1 + _NOISE - float((near * turned).sum())
        grown = np.empty((count + 1, count + 1))
        grown[:count, :count] = self._inverse + turned[:, None] * turned[None, :] / left
        grown[:count, count] = grown[count, :count] = -turned / left
        grown[count, count] = 1 / left
        self._seen, self._inverse = np.vstack([self._seen, place]), grown


def _height(score: Score, best: Score) -> float:
    """A score as one number; what is far below the best is all the same."""
    if not math.isfinite(score.value):
        return -2.0
    return max(-2.0, min(score.value - best.value, 0.5) + 5 * (score.within - best.within))


def _alike(one: _Array, other: _Array) -> _Array:
    distances = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-distances / (2 * _REACH**2)))


class _Trial(Protocol):
    """What is used of a trial of optuna."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Choose an index."""
        ...


def optuna(space: Space, start: Point, trials: int, *, seed: int = 0) -> Search:
    """Let optuna choose, by tree-structured Parzen estimators.

    Raises:
        Unavailable: optuna is not installed.
    """
    study, tell = _study(seed)
    study.enqueue_trial(_indices(space, start))
    different: set[Point] = set()
    for _ in range(4 * trials):  # it may ask for what is known, and that is no trial
        trial = study.ask()
        ends = ((dimension.name, len(dimension.values) - 1) for dimension in space.dimensions)
        point = tuple(trial.suggest_int(name, 0, last) for name, last in ends)
        if point not in different and len(different) == trials:
            return
        different.add(point)
        score = yield point
        tell(trial, score)
        if len(different) in (trials, space.size):
            return


def _indices(space: Space, point: Point) -> dict[str, int]:
    return {dimension.name: index for dimension, index in zip(space.dimensions, point, strict=True)}


class _Study(Protocol):
    """What is used of a study of optuna."""

    def ask(self) -> _Trial:
        """Begin a trial."""
        ...

    def enqueue_trial(self, params: dict[str, int]) -> None:
        """Say what to try first."""

    def tell(self, trial: _Trial, values: float) -> object:
        """Say what came of it."""


def _study(seed: int) -> tuple[_Study, Callable[[_Trial, Score], None]]:
    try:
        import optuna as library
    except ImportError as exc:
        raise Unavailable(
            "the search 'optuna' needs the package optuna: pip install 'tritonpy-analyze[optuna]'"
        ) from exc
    library.logging.set_verbosity(library.logging.WARNING)
    study: _Study = library.create_study(
        direction="maximize", sampler=library.samplers.TPESampler(seed=seed, n_startup_trials=8)
    )

    def tell(trial: _Trial, score: Score) -> None:
        value = score.value + 100 * score.within if math.isfinite(score.value) else -1e6
        study.tell(trial, max(value, -1e6))

    return study, tell
