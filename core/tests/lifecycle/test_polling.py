from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import NotFound, Unavailable
from tritonpy.lifecycle.polling import (
    ChangeDetector,
    Changes,
    ReadErrors,
    RepositoryPolling,
    RepositoryWatcher,
)
from tritonpy.repository.layout import ModelKey
from tritonpy.repository.repositories import FoundModel, Look, Repositories
from tritonpy.repository.stores.local import LocalStore
from tritonpy_sdk.testing import until_async


class Follower:
    """Polling of the harness's repositories, look by look.

    Attributes:
        unread: roots that cannot be read, for the test to set.
    """

    def __init__(self, harness: Any, **settings: bool) -> None:
        self._harness = harness
        self.unread: set[str] = set()
        self._polling = RepositoryPolling(harness.manager, self._look(), **settings)

    def _look(self) -> Look:
        look = self._harness.manager.repositories.look()
        found = {key: model for key, model in look.found.items() if model.store.root not in self.unread}
        return Look(found, look.refused, {root: Unavailable("no network") for root in self.unread})

    async def poll(self, times: int = 1, *, wait: bool = True) -> None:
        """Look so many times; by default what that begins is waited for."""
        for _ in range(times):
            self._polling.follow(self._look())
            while wait and (tasks := list(self._harness.manager._background._tasks)):
                await asyncio.wait(tasks)
                await asyncio.sleep(0)


def remove(harness: Any, path: str) -> None:
    shutil.rmtree(harness.root / path)


async def test_new_changed_and_gone_models_are_loaded_reloaded_and_unloaded(harness: Any) -> None:
    follower = Follower(harness)
    harness.write("m")
    await follower.poll(2)
    assert harness.served("m").content == "first"
    harness.write("m", "second")
    await follower.poll(2)
    assert harness.served("m").content == "second"
    old = harness.served("m")
    old.idle.clear()

    remove(harness, "m")
    await follower.poll(2, wait=False)

    assert harness.states("m") == {"1": ("UNLOADING", "")}  # what it accepted is answered first
    old.idle.set()
    await until_async(lambda: harness.states("m") == {})
    assert old.closed_with is not None
    assert harness.registry.index() == []
    with pytest.raises(NotFound, match="'m' has no available versions"):
        harness.served("m")
    assert not list(harness.registry.unready())


async def test_a_load_that_failed_is_tried_again_when_a_file_changes_and_not_before(harness: Any) -> None:
    follower = Follower(harness)
    harness.write("m", "broken")
    tries: list[int] = []
    load = harness.loader.load

    async def counting(*args: Any, **more: Any) -> Any:
        tries.append(1)
        return await load(*args, **more)

    harness.loader.load = counting
    await follower.poll(6)
    assert len(tries) == 1
    assert harness.states("m") == {"1": ("UNAVAILABLE", "Internal: boom")}

    (harness.root / "m/labels.txt").write_text("any file")
    await follower.poll(4)
    assert len(tries) == 2
    (harness.root / "m/1/__pycache__").mkdir()
    (harness.root / "m/1/__pycache__/model.pyc").write_bytes(b"x")
    (harness.root / "m/.editing").write_text("x")
    await follower.poll(4)
    assert len(tries) == 2
    harness.write("m", "mended")
    await follower.poll(2)

    assert harness.states("m") == {"1": ("READY", "")}
    assert not list(harness.registry.unready())


@pytest.mark.parametrize("broken", ["code", "config"])
async def test_a_broken_change_leaves_what_serves_and_the_index_says_why(harness: Any, broken: str) -> None:
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    if broken == "code":
        harness.write("m", "broken")
    else:
        (harness.root / "m/config.pbtxt").write_text("nonsense: 1")

    await follower.poll(2)

    assert harness.served("m").content == "first"
    state, reason = harness.states("m")["1"]
    assert state == "READY"
    assert reason.startswith("the files have changed; what was loaded before goes on serving: ")
    assert ("boom" if broken == "code" else "nonsense") in reason
    assert not list(harness.registry.unready())
    harness.write("m", "second")
    await follower.poll(2)
    assert harness.served("m").content == "second"
    assert harness.states("m") == {"1": ("READY", "")}


async def test_a_broken_change_that_is_taken_back_is_forgotten(harness: Any, tmp_path: Path) -> None:
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    shutil.move(harness.root / "m/config.pbtxt", tmp_path / "kept")
    (harness.root / "m/config.pbtxt").write_text("nonsense: 1")
    await follower.poll(2)
    assert "nonsense" in harness.states("m")["1"][1]

    shutil.move(tmp_path / "kept", harness.root / "m/config.pbtxt")
    await follower.poll(2)

    assert harness.states("m") == {"1": ("READY", "")}
    assert len(harness.loader.loaded) == 1


async def test_a_new_model_that_cannot_be_read_is_shown_with_its_reason_until_it_is_gone(
    harness: Any,
) -> None:
    follower = Follower(harness)
    harness.write("m")
    (harness.root / "m/config.pbtxt").write_text("nonsense: 1")
    await follower.poll(2)

    (row,) = harness.registry.index()
    assert (row["name"], row["state"], "nonsense" in row["reason"]) == ("m", "UNAVAILABLE", True)
    assert harness.registry.index(ready=True) == []
    assert [row["name"] for row in harness.registry.unready()] == ["m"]
    remove(harness, "m")
    await follower.poll(2)
    assert harness.registry.index() == []
    assert not list(harness.registry.unready())


async def test_a_model_that_failed_and_is_gone_is_in_nobody_s_way(harness: Any) -> None:
    harness.write("m", "broken")
    assert not await harness.manager.load_all()
    follower = Follower(harness)

    remove(harness, "m")
    await follower.poll(2)

    assert harness.registry.index() == []
    assert not list(harness.registry.unready())


async def test_a_slow_load_delays_no_other_model(harness: Any) -> None:
    follower = Follower(harness)
    harness.write("slow")
    harness.loader.gate.clear()
    await follower.poll(2, wait=False)
    await until_async(lambda: harness.loader.running == 1)
    harness.write("quick")

    await follower.poll(2, wait=False)

    await until_async(lambda: harness.loader.running == 2)
    harness.loader.gate.set()
    await follower.poll()
    assert harness.served("slow").content == harness.served("quick").content == "first"


async def test_a_model_that_changes_while_it_is_loaded_is_loaded_once_more_after_that(harness: Any) -> None:
    follower = Follower(harness)
    harness.write("m")
    harness.loader.gate.clear()
    await follower.poll(2, wait=False)
    await until_async(lambda: harness.loader.running == 1)
    for content in ("second", "third"):  # two changes, one load for both
        harness.write("m", content)
        await follower.poll(2, wait=False)
    assert harness.loader.running == 1

    harness.loader.gate.set()
    await follower.poll()

    assert harness.served("m").content == "third"
    assert len(harness.loader.loaded) == 2
    assert harness.loader.most_running == 1


async def test_a_model_that_goes_while_it_is_loaded_is_unloaded_after_that_and_may_come_back(
    harness: Any,
) -> None:
    follower = Follower(harness)
    harness.write("m")
    await follower.poll(2)
    harness.write("m", "second")
    harness.loader.gate.clear()
    await follower.poll(2, wait=False)
    await until_async(lambda: harness.loader.running == 1)

    remove(harness, "m")
    await follower.poll(2, wait=False)
    assert harness.served("m").content == "first"
    harness.write("m", "back")
    await follower.poll(2, wait=False)
    harness.loader.gate.set()
    await follower.poll()

    assert harness.served("m").content == "back"
    assert harness.states("m") == {"1": ("READY", "")}


async def test_files_that_cannot_be_had_for_the_moment_are_asked_for_at_each_look(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    harness.write("m", "second")
    asked: list[str] = []

    def refuse(store: LocalStore, name: str) -> Any:
        asked.append(name)
        raise Unavailable("no network")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "fetch", refuse)
        await follower.poll(4)
    assert len(asked) == 3  # from the second look on
    assert "no network" in harness.states("m")["1"][1]
    await follower.poll()

    assert harness.served("m").content == "second"
    assert harness.states("m") == {"1": ("READY", "")}


async def test_a_model_that_goes_while_its_files_cannot_be_had_is_unloaded(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    harness.write("m", "second")

    def refuse(store: LocalStore, name: str) -> Any:
        raise Unavailable("no network")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "fetch", refuse)
        await follower.poll(3)
        assert harness.served("m").content == "first"
        remove(harness, "m")
        await follower.poll(2)

    await until_async(lambda: harness.states("m") == {})


async def test_a_repository_that_cannot_be_read_keeps_its_models_and_is_mentioned_once(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    caplog.set_level(logging.INFO, "tritonpy.repository")
    follower.unread = {str(harness.root)}

    await follower.poll(5)

    assert harness.served("m").content == "first"
    errors = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert errors == [
        f"cannot look at model repository '{harness.root}'; its models stay as they are: no network"
    ]
    follower.unread = set()
    harness.write("m", "second")
    await follower.poll(2)
    assert harness.served("m").content == "second"
    assert f"model repository '{harness.root}' can be looked at again" in caplog.text


async def test_a_repository_that_does_not_answer_holds_up_no_other(
    harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    shutil.copytree(harness.root, other)
    harness.manager.repositories = Repositories((str(harness.root), str(other))).open()
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    harness.write("m", "second")
    look = LocalStore.look

    def refuse_one(store: LocalStore, name: str) -> Any:
        if store.root == str(other):
            raise Unavailable("no network")
        return look(store, name)

    monkeypatch.setattr(LocalStore, "look", refuse_one)
    await follower.poll(2)

    assert harness.served("m").content == "second"


async def test_what_follows_for_development_unloads_nothing(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness, unloads=False)

    remove(harness, "m")
    await follower.poll(3)

    assert harness.served("m").content == "first"


async def test_in_explicit_mode_only_what_was_asked_for_is_followed(harness: Any) -> None:
    harness.write("wanted")
    harness.write("idle")
    await harness.manager.load("wanted")
    follower = Follower(harness, only_wanted=True, unloads=False)

    for name in ("wanted", "idle", "new"):
        harness.write(name, "second")
    await follower.poll(2)

    assert harness.served("wanted").content == "second"
    assert harness.states("idle") == harness.states("new") == {}


async def test_a_name_that_is_taken_twice_is_served_by_neither_until_one_is_gone(
    harness: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    harness.manager.repositories = Repositories((str(harness.root), str(other))).open()
    harness.write("m")
    await harness.manager.load_all()
    follower = Follower(harness)
    shutil.copytree(harness.root / "m", other / "m")
    (other / "m/1/model.txt").write_text("of the other")

    await follower.poll(2)
    await until_async(lambda: harness.loader.loaded[0].closed_with is not None)

    (row,) = harness.registry.index()
    assert (row["name"], row["state"]) == ("m", "UNAVAILABLE")
    assert "version" not in row
    assert str(other) in row["reason"]
    with pytest.raises(NotFound):
        harness.served("m")
    remove(harness, "m")
    await follower.poll(2)
    assert harness.served("m").content == "of the other"
    assert harness.registry.index() == [{"name": "m", "version": "1", "state": "READY"}]


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
    monkeypatch.setattr("tritonpy.lifecycle.polling._STOP_S", 0.01)
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


A, B = ModelKey("a"), ModelKey("b")


class Place:
    """Stands for a store, of which only the root is looked at."""

    def __init__(self, root: str) -> None:
        self.root = root


def look(
    *, refused: dict[str, str] | None = None, unread: tuple[str, ...] = (), root: str = "/r", **models: Any
) -> Look:
    """A look in which each model has one file that was changed at this time; a pair names the root, too."""
    found = {}
    for name, where in models.items():
        place, time = where if isinstance(where, tuple) else (root, where)
        files = frozenset({("1/model.py", time, 5)})
        found[ModelKey(name)] = FoundModel(ModelKey(name), Place(place), files)  # type: ignore[arg-type]
    return Look(found, refused or {}, {root: Unavailable("no network") for root in unread})


def told(
    changed: tuple[ModelKey, ...] = (),
    gone: tuple[ModelKey, ...] = (),
    refused: dict[ModelKey, str] | None = None,
) -> Changes:
    return Changes(changed, gone, refused or {})


def test_a_change_counts_when_it_has_come_to_rest() -> None:
    detector = ChangeDetector(look(a=1, b=1))

    assert detector.changes(look(a=1, b=1)) == told()
    assert detector.changes(look(a=2, b=1)) == told()  # perhaps not yet all of it
    assert detector.changes(look(a=3, b=1)) == told()  # indeed
    assert detector.changes(look(a=3, b=1)) == told((A,))
    assert detector.changes(look(a=3, b=1)) == told()


def test_a_change_that_is_taken_back_before_it_rests_is_none() -> None:
    detector = ChangeDetector(look(a=1))

    assert detector.changes(look(a=2)) == told()
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told()


def test_models_come_to_rest_each_for_itself() -> None:
    detector = ChangeDetector(look(a=1, b=1))

    assert detector.changes(look(a=2, b=1)) == told()
    assert detector.changes(look(a=2, b=2)) == told((A,))
    assert detector.changes(look(a=2, b=2)) == told((B,))


def test_a_new_model_is_a_change_also_one_that_comes_back() -> None:
    detector = ChangeDetector(look(a=1))

    assert detector.changes(look(a=1, b=1)) == told()
    assert detector.changes(look(a=1, b=1)) == told((B,))
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told(gone=(B,))
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1, b=1)) == told()
    assert detector.changes(look(a=1, b=1)) == told((B,))


def test_a_directory_that_is_exchanged_for_another_one_is_never_gone() -> None:
    detector = ChangeDetector(look(a=1))

    assert detector.changes(look()) == told()
    assert detector.changes(look(a=2)) == told()
    assert detector.changes(look(a=2)) == told((A,))


def test_a_model_that_moves_to_another_repository_has_changed_though_its_files_have_not() -> None:
    detector = ChangeDetector(look(a=("/r", 1)))

    assert detector.changes(look(a=("/s", 1))) == told()
    assert detector.changes(look(a=("/s", 1))) == told((A,))


def test_nothing_is_told_of_models_whose_repository_cannot_be_read() -> None:
    detector = ChangeDetector(look(a=1, b=("/s", 1)))

    for _ in range(3):
        assert detector.changes(look(b=("/s", 1), unread=("/r",))) == told()
    assert detector.changes(look(b=("/s", 2), unread=("/r",))) == told()
    assert detector.changes(look(b=("/s", 2), unread=("/r",))) == told((B,))
    assert detector.changes(look(a=1, b=("/s", 2))) == told()


def test_the_like_of_a_model_in_another_repository_does_not_take_its_place_while_its_own_is_unread() -> None:
    detector = ChangeDetector(look(a=("/r", 1)))

    for _ in range(3):
        assert detector.changes(look(a=("/s", 7), unread=("/r",))) == told()
    assert detector.changes(look(a=("/r", 1))) == told()


def test_a_name_that_is_taken_twice_counts_when_two_looks_agree_and_so_does_its_end() -> None:
    detector = ChangeDetector(look(a=1))
    twice = look(refused={"a": "is not unique"})

    assert detector.changes(twice) == told()
    assert detector.changes(twice) == told(refused={A: "is not unique"})
    assert detector.changes(twice) == told()
    for _ in range(3):  # whichever of the two repositories cannot be read
        assert detector.changes(look(a=("/s", 1), unread=("/r",))) == told()
    assert detector.changes(look(a=("/s", 1))) == told()
    assert detector.changes(look(a=("/s", 1))) == told((A,))


def test_a_name_that_was_taken_twice_at_the_start_is_known() -> None:
    detector = ChangeDetector(look(refused={"a": "is not unique"}))

    assert detector.changes(look(refused={"a": "is not unique"})) == told()
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told((A,))


def test_what_shall_be_told_again_is_told_at_the_next_look() -> None:
    detector = ChangeDetector(look(a=1))
    detector.changes(look(a=2))
    detector.changes(look(a=2))

    detector.report_again(A)

    assert detector.changes(look(a=2)) == told((A,))
    assert detector.changes(look(a=2)) == told()


def test_what_shall_be_told_again_may_be_gone_instead_or_be_in_a_repository_that_cannot_be_read() -> None:
    detector = ChangeDetector(look(a=1, b=1))
    for key in (A, B):
        detector.report_again(key)

    assert detector.changes(look(unread=("/r",))) == told()
    assert detector.changes(look(a=1)) == told()
    assert detector.changes(look(a=1)) == told((A,), gone=(B,))
    detector.report_again(B)  # what was tried for it has failed only now
    assert detector.changes(look(a=1)) == told()


def test_a_repository_that_cannot_be_read_is_news_once() -> None:
    errors = ReadErrors()

    assert list(errors.news(look())) == []
    assert list(errors.news(look(unread=("/r",)))) == [("/r", "no network")]
    assert list(errors.news(look(unread=("/r", "/s")))) == [("/s", "no network")]
    assert list(errors.news(look(unread=("/r", "/s")))) == []
    assert list(errors.news(look(unread=("/r",)))) == [("/s", "")]
    assert list(errors.news(look())) == [("/r", "")]
