from __future__ import annotations

from collections.abc import Callable

import pytest
from tritonpy.request import InferRequest
from tritonpy.workers.unanswered import UnansweredWatch


class Clock:
    """Time that a test moves, and its timers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Alarm] = []

    def __call__(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        self.timers.append(Alarm(self, self.now + delay_s, callback))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for alarm in [alarm for alarm in self.timers if alarm.at <= self.now]:
            self.timers.remove(alarm)
            alarm.callback()


class Alarm:
    def __init__(self, clock: Clock, at: float, callback: Callable[[], None]) -> None:
        self.clock = clock
        self.at = at
        self.callback = callback

    def cancel(self) -> None:
        self.clock.timers.remove(self)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reported() -> list[tuple[str, float]]:
    return []


@pytest.fixture
def watch(clock: Clock, reported: list[tuple[str, float]]) -> UnansweredWatch:
    return make_watch(60, clock, reported)


def make_watch(after_s: float, clock: Clock, reported: list[tuple[str, float]]) -> UnansweredWatch:
    return UnansweredWatch(
        after_s,
        lambda request, age_s: reported.append((request.id, age_s)),
        clock=clock,
        call_later=clock.call_later,
    )


def request(name: str) -> InferRequest:
    return InferRequest("m", {}, id=name)


def test_a_request_is_reported_once_when_its_time_is_over(
    watch: UnansweredWatch, clock: Clock, reported: list[tuple[str, float]]
) -> None:
    watch.add(4, request("a"))
    clock.advance(59)
    assert reported == []

    clock.advance(1)
    clock.advance(1000)
    assert reported == [("a", 60)]
    assert clock.timers == []


def test_an_answered_request_is_not_reported(
    watch: UnansweredWatch, clock: Clock, reported: list[tuple[str, float]]
) -> None:
    watch.add(4, request("a"))
    watch.remove(4)
    watch.remove(5)

    clock.advance(1000)

    assert reported == []


def test_each_request_has_its_own_time_and_all_have_one_timer(
    watch: UnansweredWatch, clock: Clock, reported: list[tuple[str, float]]
) -> None:
    watch.add(4, request("a"))
    clock.advance(10)
    watch.add(5, request("b"))
    clock.advance(10)
    watch.remove(4)
    watch.add(4, request("c"))
    assert len(clock.timers) == 1

    clock.advance(40)  # the time of the first, which has been answered
    assert (reported, len(clock.timers)) == ([], 1)
    clock.advance(10)
    assert reported == [("b", 60)]
    clock.advance(10)
    assert reported == [("b", 60), ("c", 60)]


def test_a_timer_that_is_late_reports_the_real_age(
    watch: UnansweredWatch, clock: Clock, reported: list[tuple[str, float]]
) -> None:
    watch.add(4, request("a"))
    watch.add(5, request("b"))

    clock.advance(75)

    assert reported == [("a", 75), ("b", 75)]


def test_nothing_is_left_after_clear(
    watch: UnansweredWatch, clock: Clock, reported: list[tuple[str, float]]
) -> None:
    watch.add(4, request("a"))

    watch.clear()
    watch.clear()

    assert clock.timers == []
    watch.add(4, request("b"))
    clock.advance(60)
    assert reported == [("b", 60)]


def test_zero_watches_nothing(clock: Clock, reported: list[tuple[str, float]]) -> None:
    watch = make_watch(0, clock, reported)

    watch.add(4, request("a"))

    assert clock.timers == []
