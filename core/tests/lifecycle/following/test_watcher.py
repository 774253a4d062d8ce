from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from tritonpy.lifecycle.following.watcher import RepositoryWatcher
from tritonpy.repository.repositories import Look

NOTHING = Look({}, {}, {})


class Clock:
    """Stands in for waiting: the test says when the next look is due, and when the watcher is to stop."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._due = threading.Semaphore(0)
        self._waiting = threading.Semaphore(0)
        self._stop = False

    def wait(self, interval_s: float) -> bool:
        self.waits.append(interval_s)
        self._waiting.release()
        assert self._due.acquire(timeout=20)
        return self._stop

    def tick(self, stop: bool = False) -> None:
        """Let one look happen and return when it is over."""
        assert self._waiting.acquire(timeout=20)
        self._stop = stop
        self._due.release()
        if not stop:
            assert self._waiting.acquire(timeout=20)
            self._waiting.release()


class Looks:
    """What the watcher sees; set by the test."""

    def __init__(self) -> None:
        self.now = NOTHING
        self.error: Exception | None = None

    def __call__(self) -> Look:
        if self.error is not None:
            raise self.error
        return self.now


Watched = tuple[Looks, Clock, list[Look]]


@pytest.fixture
def watched() -> Iterator[Watched]:
    looks, clock, told = Looks(), Clock(), list[Look]()
    watcher = RepositoryWatcher(looks, told.append, 2.5, wait=clock.wait)
    watcher.start()
    yield looks, clock, told
    clock.tick(stop=True)
    watcher.stop()


def test_the_watcher_waits_between_two_looks_and_tells_of_each(watched: Watched) -> None:
    looks, clock, told = watched
    assert told == []

    clock.tick()
    looks.now = other = Look({}, {"m": "twice"}, {})
    clock.tick()

    assert told == [NOTHING, other]
    assert clock.waits == [2.5, 2.5, 2.5]


def test_a_look_that_fails_is_logged_and_not_the_last(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    looks, clock, told = watched
    looks.error = OSError("disk on fire")
    with caplog.at_level(logging.ERROR):
        clock.tick()
    looks.error = None
    clock.tick()

    assert "disk on fire" in caplog.text
    assert told == [NOTHING]


def test_stopping_does_not_wait_for_the_interval() -> None:
    watcher = RepositoryWatcher(lambda: NOTHING, lambda _: None, 3600)
    watcher.start()

    watcher.stop()


def test_a_watcher_that_was_never_started_can_be_stopped() -> None:
    RepositoryWatcher(lambda: NOTHING, lambda _: None, 1).stop()


def test_a_look_that_ends_after_the_watcher_was_stopped_is_told_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tritonpy.lifecycle.following.watcher._STOP_S", 0.01)
    begun, gate, over = threading.Event(), threading.Event(), threading.Event()
    told: list[Look] = []

    def look() -> Look:
        begun.set()
        gate.wait(40)
        over.set()
        return NOTHING

    watcher = RepositoryWatcher(look, told.append, 0)
    watcher.start()
    assert begun.wait(20)

    watcher.stop()  # returns though the look goes on
    gate.set()

    assert over.wait(20)
    watcher._thread.join(20)
    assert told == []
