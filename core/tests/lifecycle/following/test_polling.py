from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import NotFound, Unavailable
from tritonpy.lifecycle.following.polling import RepositoryPolling
from tritonpy.repository.repositories import Look, Repositories
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
    harness.manager.repositories = Repositories((str(harness.root), str(other)))
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
    harness.manager.repositories = Repositories((str(harness.root), str(other)))
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
