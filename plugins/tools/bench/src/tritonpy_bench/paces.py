"""Paces: when requests are sent."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from typing import Literal, TypeAlias

from tritonpy.errors import TritonError
from tritonpy.tracing.summary import read_trace

from tritonpy_bench.errors import BenchError


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A closed loop: so many requests at any time, each answer followed by the next request."""

    requests: int

    def __str__(self) -> str:
        return f"concurrency {self.requests}"


@dataclass(frozen=True, slots=True)
class PeriodicConcurrency:
    """A closed loop that grows: `step` more requests at a time whenever so many are answered.

    Attributes:
        start: requests at a time in the beginning.
        end: likewise in the end, which comes `period` answers after it is reached.
        step: how many are added.
        period: answers between two steps.
    """

    start: int
    end: int
    step: int
    period: int

    def __str__(self) -> str:
        return f"concurrency {self.start} to {self.end}, {self.step} more each {self.period} answers"


@dataclass(frozen=True, slots=True)
class Rate:
    """An open loop: so many requests in a second, whether or not others are answered.

    Attributes:
        per_s: requests in a second.
        distribution: of the times between two of them: all equal, or as of many clients that know nothing
            of each other.
        offset: requests by which this one is behind, where several clients make one rate.
        seed: of times that are drawn.
    """

    per_s: float
    distribution: Literal["constant", "poisson"] = "constant"
    offset: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        return f"rate {self.per_s:g}/s{' poisson' if self.distribution == 'poisson' else ''}"

    def times_s(self) -> Iterator[float]:
        """When each request is sent, in seconds from the start."""
        if self.distribution == "constant":
            return ((number + self.offset) / self.per_s for number in count())
        draw = random.Random(self.seed)
        return accumulate(draw.expovariate(self.per_s) for _ in count())


@dataclass(frozen=True, slots=True)
class Schedule:
    """An open loop at given times.

    Attributes:
        offsets_s: when each request is sent, in seconds from the start, ascending.
        period_s: after which they begin again; None to end with the last.
        name: of the schedule, for reports.
    """

    offsets_s: Sequence[float]
    period_s: float | None = None
    name: str = "schedule"

    def __str__(self) -> str:
        return self.name

    def times_s(self) -> Iterator[float]:
        """When each request is sent, in seconds from the start."""
        if self.period_s is None:
            return iter(self.offsets_s)
        return (turn * self.period_s + offset for turn in count() for offset in self.offsets_s)


Pace: TypeAlias = Concurrency | PeriodicConcurrency | Rate | Schedule
"""When requests are sent."""


def split_pace(pace: Pace, clients: int) -> list[Pace]:
    """The parts of a pace for several clients, which together are the whole; idle ones are left out."""
    numbers = range(clients)
    match pace:
        case Concurrency():
            parts = [pace.requests // clients + (number < pace.requests % clients) for number in numbers]
            return [Concurrency(part) for part in parts if part]
        case PeriodicConcurrency():
            return [pace]
        case Rate():
            per_s = pace.per_s / clients
            return [
                replace(pace, per_s=per_s, offset=number / clients, seed=pace.seed + number)
                for number in numbers
            ]
        case Schedule():
            shares = [pace.offsets_s[number::clients] for number in numbers]
            return [replace(pace, offsets_s=share) for share in shares if share]


def request_count(pace: Pace) -> int:
    """How many requests a pace has in all; 0 if it goes on for ever."""
    match pace:
        case Schedule(period_s=None):
            return len(pace.offsets_s)
        case PeriodicConcurrency():
            return (-(-(pace.end - pace.start) // pace.step) + 1) * pace.period
        case _:
            return 0


def read_intervals(path: Path) -> Schedule:
    """A schedule from a file with a time between two requests on each line, in microseconds.

    It begins again after the last. This is what perf_analyzer reads.

    Raises:
        BenchError: the file has something else.
    """
    intervals_s = [value / 1e6 for value in _numbers(path)]
    if min(intervals_s) < 0 or not sum(intervals_s):
        raise BenchError(f"intervals '{path}': expected microseconds, not all of them 0")
    offsets_s = list(accumulate(intervals_s))
    return Schedule([0.0, *offsets_s[:-1]], offsets_s[-1], f"intervals of {path.name}")


def read_replay(path: Path, model: str, speed: float = 1.0) -> Schedule:
    """The requests that a model once got, at the times between them.

    Args:
        path: of a trace file of the server, or of one with a time in seconds on each line.
        model: whose requests are taken from a trace.
        speed: 2 for twice as quick.

    Raises:
        BenchError: there are none.
    """
    text = _text(path)
    if text.lstrip().startswith("["):
        times_s = _traced(path, text, model)
    else:
        times_s = _numbers(path)
    times_s.sort()
    offsets_s = [(time_s - times_s[0]) / speed for time_s in times_s]
    at_speed = "" if speed == 1 else f" {speed:g} times as quick"
    return Schedule(offsets_s, None, f"replay of {path.name}{at_speed}")


def _traced(path: Path, text: str, model: str) -> list[float]:
    """When the requests of a model arrived; those that another model sent are left out."""
    try:
        requests = read_trace(text, str(path))
    except TritonError as error:
        raise BenchError(error.message) from None
    times_s = [
        request.stamps[0][1] / 1e9
        for request in requests
        if request.model_name == model and not request.parent_id and request.stamps
    ]
    if not times_s:
        names = sorted({request.model_name for request in requests})
        raise BenchError(
            f"replay '{path}': it has no request to model '{model}', but to {', '.join(names) or 'none'}"
        )
    return times_s


def _numbers(path: Path) -> list[float]:
    lines = [line.strip() for line in _text(path).splitlines()]
    try:
        numbers = [float(line) for line in lines if line]
    except ValueError as error:
        raise BenchError(f"'{path}': expected a number on each line: {error}") from None
    if not numbers:
        raise BenchError(f"'{path}' has no line with a number")
    return numbers


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise BenchError(f"'{path}': {error.strerror}") from None
