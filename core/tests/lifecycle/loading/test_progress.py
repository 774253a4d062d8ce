"""What the log says of a load while it goes on, and how long its steps took."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from tritonpy.lifecycle.loading.progress import LoadProgress


class Clock:
    """Time that passes when a test says so, and calls what is due."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._due: list[tuple[float, Call]] = []

    def __call__(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Call:
        call = Call(function)
        self._due.append((self.now_s + delay_s, call))
        return call

    def pass_by(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.waiting and (first := min(self.waiting, key=lambda due: due[0]))[0] <= until_s:
            self._due.remove(first)
            self.now_s = first[0]
            first[1].function()
        self.now_s = until_s

    @property
    def waiting(self) -> list[tuple[float, Call]]:
        return [(due_s, call) for due_s, call in self._due if not call.is_cancelled]


class Call:
    """A call that can be cancelled."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock, caplog: pytest.LogCaptureFixture) -> LoadProgress:
    caplog.set_level(logging.INFO, "tritonpy.repository")
    return LoadProgress("m:1", interval_s=30, now_s=clock, call_later=clock.call_later)


def test_a_long_load_says_every_interval_where_it_is(
    progress: LoadProgress, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with progress:
        progress.begin("auto-complete")
        clock.pass_by(31)
        progress.begin("initialize", "instance 2 of 4")
        clock.pass_by(30)

    assert caplog.messages == [
        "loading: m:1 for 30 s, now in auto-complete",
        "loading: m:1 for 60 s, now in initialize (instance 2 of 4)",
        "loading: m:1 took 61.00 s (auto-complete 31.00 s, initialize 30.00 s)",
    ]


def test_a_quick_load_says_only_how_long_it_took_and_durations_of_a_step_add_up(
    progress: LoadProgress, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with progress:
        for number in (1, 2):
            progress.begin("initialize", f"instance {number} of 2")
            clock.pass_by(0.75)

    assert caplog.messages == ["loading: m:1 took 1.50 s (initialize 1.50 s)"]
    assert not clock.waiting


def test_a_load_that_fails_says_where_and_leaves_no_timer(
    progress: LoadProgress, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> None:
        with progress:
            progress.begin("initialize", "instance 2 of 4")
            clock.pass_by(3)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        load()

    assert caplog.messages == ["loading: m:1 failed after 3.00 s, in initialize (instance 2 of 4)"]
    assert not clock.waiting


def test_an_interval_of_zero_says_nothing_meanwhile(clock: Clock) -> None:
    with LoadProgress("m:1", interval_s=0, now_s=clock, call_later=clock.call_later):
        assert not clock.waiting
