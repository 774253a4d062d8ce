from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from tritonpy.repository.key import ModelKey
from tritonpy.repository.watcher import ChangeDetector, Fingerprints, ModelWatcher


def seen(**models: int) -> Fingerprints:
    """A look in which each model has one file that was changed at this time."""
    return {ModelKey(name): frozenset({("1/model.py", time, 5)}) for name, time in models.items()}


def test_a_change_counts_when_it_has_come_to_rest() -> None:
    detector = ChangeDetector(seen(a=1, b=1))

    assert detector.changed(seen(a=1, b=1)) == []
    assert detector.changed(seen(a=2, b=1)) == []  # perhaps not yet all of it
    assert detector.changed(seen(a=3, b=1)) == []  # indeed
    assert detector.changed(seen(a=3, b=1)) == [ModelKey("a")]
    assert detector.changed(seen(a=3, b=1)) == []


def test_a_change_that_is_taken_back_before_it_rests_is_none() -> None:
    detector = ChangeDetector(seen(a=1))

    assert detector.changed(seen(a=2)) == []
    assert detector.changed(seen(a=1)) == []
    assert detector.changed(seen(a=1)) == []


def test_models_come_to_rest_each_for_itself() -> None:
    detector = ChangeDetector(seen(a=1, b=1))

    assert detector.changed(seen(a=2, b=1)) == []
    assert detector.changed(seen(a=2, b=2)) == [ModelKey("a")]
    assert detector.changed(seen(a=2, b=2)) == [ModelKey("b")]


def test_a_new_model_is_a_change_also_one_that_comes_back() -> None:
    detector = ChangeDetector(seen(a=1))

    assert detector.changed(seen(a=1, b=1)) == []
    assert detector.changed(seen(a=1, b=1)) == [ModelKey("b")]
    assert detector.changed(seen(a=1)) == []
    assert detector.changed(seen(a=1, b=1)) == []
    assert detector.changed(seen(a=1, b=1)) == [ModelKey("b")]


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
        assert self._due.acquire(timeout=10)
        return self._stop

    def tick(self, stop: bool = False) -> None:
        """Let one look happen and return when it is over."""
        assert self._waiting.acquire(timeout=10)
        self._stop = stop
        self._due.release()
        if not stop:
            assert self._waiting.acquire(timeout=10)
            self._waiting.release()


class Looks:
    """What the watcher sees; set by the test."""

    def __init__(self) -> None:
        self.now: Fingerprints = seen(a=1)
        self.error: Exception | None = None

    def __call__(self) -> Fingerprints:
        if self.error is not None:
            raise self.error
        return self.now


@pytest.fixture
def watched() -> Iterator[tuple[Looks, Clock, list[ModelKey]]]:
    looks, clock, changed = Looks(), Clock(), list[ModelKey]()
    watcher = ModelWatcher(looks, changed.append, interval_s=2.5, wait=clock.wait)
    watcher.start()
    yield looks, clock, changed
    clock.tick(stop=True)
    watcher.stop()


def test_the_watcher_looks_after_each_interval_and_tells_of_changes(
    watched: tuple[Looks, Clock, list[ModelKey]],
) -> None:
    looks, clock, changed = watched

    looks.now = seen(a=2)
    clock.tick()
    assert changed == []
    clock.tick()

    assert changed == [ModelKey("a")]
    assert set(clock.waits) == {2.5}


def test_a_look_that_fails_is_logged_and_not_the_last(
    watched: tuple[Looks, Clock, list[ModelKey]], caplog: pytest.LogCaptureFixture
) -> None:
    looks, clock, changed = watched
    looks.error = OSError("disk on fire")
    with caplog.at_level(logging.ERROR):
        clock.tick()
    looks.error = None
    looks.now = seen(a=2)
    clock.tick()
    clock.tick()

    assert "disk on fire" in caplog.text
    assert changed == [ModelKey("a")]


def test_stopping_does_not_wait_for_the_interval() -> None:
    watcher = ModelWatcher(lambda: {}, lambda _: None, interval_s=3600)
    watcher.start()

    watcher.stop()


def test_a_watcher_that_was_never_started_can_be_stopped() -> None:
    ModelWatcher(lambda: {}, lambda _: None).stop()
