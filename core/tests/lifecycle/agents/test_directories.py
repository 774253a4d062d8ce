"""Files that repository agents hand over, and directories that they acquire."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.plugin import RepoAgentModel

from .recorders import Harness, refuse


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


# What agents hand over


def test_each_agent_sees_what_the_one_before_it_handed_over(harness: Harness, tmp_path: Path) -> None:
    copies = {name: tmp_path / f"copy_{name}" for name in "ab"}
    seen: dict[str, Path] = {}
    for name, agent in harness.agents.items():

        def act(model: RepoAgentModel, name: str = name) -> None:
            seen[name] = model.directory
            if name in copies:
                copies[name].mkdir()
                model.directory = copies[name]

        agent.on["LOAD"] = act

    chain = harness.chain("abc")
    chain.load()

    assert seen == {"a": tmp_path, "b": copies["a"], "c": copies["b"]}
    assert chain.directory == copies["b"]


def test_the_configuration_comes_from_where_the_files_are_and_the_agents_stay(
    harness: Harness, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.pbtxt").write_text('max_batch_size: 8 model_repository_agents { agents { name: "c" } }')
    configs: list[dict[str, Any]] = []

    def hand_over(model: RepoAgentModel) -> None:
        configs.append(model.config)
        model.directory = copy

    harness.agents["a"].on["LOAD"] = hand_over
    harness.agents["b"].on["LOAD"] = lambda model: configs.append(model.config)

    chain = harness.chain("ab", config="max_batch_size: 2")
    chain.load()

    assert [config["max_batch_size"] for config in configs] == [2, 8]
    assert chain.config.max_batch_size == 8
    assert [agent.name for agent in chain.config.model_repository_agents.agents] == ["a", "b"]
    assert "c LOAD" not in harness.log


def test_without_a_configuration_where_the_files_are_the_first_one_holds(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()

    def hand_over(model: RepoAgentModel) -> None:
        model.directory = tmp_path / "copy"

    harness.agents["a"].on["LOAD"] = hand_over
    chain = harness.chain("a", config="max_batch_size: 2")
    chain.load()

    assert chain.config.max_batch_size == 2


def test_a_configuration_that_cannot_be_read_where_the_files_are_stops_the_load(
    harness: Harness, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.pbtxt").write_text("gibber ish")

    def hand_over(model: RepoAgentModel) -> None:
        model.directory = copy

    harness.agents["a"].on["LOAD"] = hand_over

    with pytest.raises(InvalidArg, match="failed to read text proto from"):
        harness.chain("a").load()
    assert "a LOAD_FAIL" in harness.log


def test_what_is_no_directory_cannot_be_handed_over(harness: Harness, tmp_path: Path) -> None:
    def hand_over(model: RepoAgentModel) -> None:
        model.directory = tmp_path / "nowhere"

    harness.agents["a"].on["LOAD"] = hand_over

    with pytest.raises(InvalidArg, match=r"agent 'a' handed over '.*/nowhere' for model 'm': expected a dir"):
        harness.chain("ab").load()
    assert "b LOAD" not in harness.log
    assert harness.log[-3:] == ["a LOAD_FAIL", "a model_finalize", "a finalize"]


@pytest.mark.parametrize("action", ["LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"])
def test_files_can_be_handed_over_during_load_only(harness: Harness, tmp_path: Path, action: str) -> None:
    refusals: list[str] = []

    def hand_over(model: RepoAgentModel) -> None:
        with pytest.raises(InvalidArg) as caught:
            model.directory = tmp_path
        refusals.append(str(caught.value))

    harness.agents["a"].on[action] = hand_over
    chain = harness.chain("a")
    chain.load()
    if action == "LOAD_FAIL":
        chain.failed()
    else:
        chain.loaded()
        chain.unload()
        chain.unloaded()

    assert refusals == [
        f"location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is "
        f"TRITONREPOAGENT_ACTION_{action} (model 'm')"
    ]


# Directories that agents acquire


def test_agents_are_let_go_of_whatever_keeps_their_directories_from_being_removed(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: Path) -> None:
        shutil.rmtree(directory)
        raise RecursionError("a thousand directories deep")

    monkeypatch.setattr("tritonpy.handles._remove", fail)
    chain = harness.chain("ab")
    for agent in harness.agents.values():
        agent.on["LOAD"] = RepoAgentModel.acquire_directory
    chain.load()
    harness.take_log()

    chain.failed()

    assert [entry for entry in harness.take_log() if entry.endswith(" finalize")] == [
        "b finalize",
        "a finalize",
    ]


def test_an_acquired_directory_is_there_until_the_model_is_gone(harness: Harness, tmp_path: Path) -> None:
    acquired: list[Path] = []

    def copy(model: RepoAgentModel) -> None:
        acquired.append(model.acquire_directory())
        (acquired[0] / "1").mkdir()
        (acquired[0] / "1/model.txt").write_text("changed")
        (acquired[0] / "1").chmod(0o500)  # as a copy of a directory that may only be read
        assert model.acquire_directory() == acquired[0]
        model.directory = acquired[0]

    harness.agents["a"].on["LOAD"] = copy
    chain = harness.chain("ab")
    chain.load()
    chain.loaded()
    chain.unload()

    assert chain.directory == acquired[0]
    assert acquired[0].stat().st_mode & 0o777 == 0o700
    assert (acquired[0] / "1/model.txt").read_text() == "changed"
    chain.unloaded()
    assert not acquired[0].exists()


@pytest.mark.parametrize("agents", ["a", "ab"])
def test_an_acquired_directory_goes_when_the_load_fails(harness: Harness, agents: str) -> None:
    acquired: list[Path] = []
    harness.agents["a"].on["LOAD"] = lambda model: acquired.append(model.acquire_directory())
    harness.agents["b"].on["LOAD"] = refuse
    chain = harness.chain(agents)

    if agents == "a":
        chain.load()
        chain.failed()
    else:
        with pytest.raises(InvalidArg, match="refused"):
            chain.load()

    assert not acquired[0].exists()


def test_an_agent_may_release_what_it_acquired_and_nothing_twice(harness: Harness) -> None:
    def act(model: RepoAgentModel) -> None:
        with pytest.raises(Unavailable, match=r"^No mutable location to be deleted \(model 'm'\)$"):
            model.release_directory()
        first = model.acquire_directory()
        model.release_directory()
        assert not first.exists()
        assert model.acquire_directory() != first
        model.release_directory()

    harness.agents["a"].on["LOAD"] = act
    harness.chain("a").load()


def test_a_directory_that_was_released_can_not_be_what_is_loaded(harness: Harness) -> None:
    def act(model: RepoAgentModel) -> None:
        model.directory = model.acquire_directory()
        model.release_directory()

    harness.agents["a"].on["LOAD"] = act

    with pytest.raises(InvalidArg, match="expected a directory that exists"):
        harness.chain("a").load()


def test_an_acquired_directory_that_has_gone_by_itself_is_no_trouble(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.agents["a"].on["LOAD"] = lambda model: model.acquire_directory().rmdir()
    chain = harness.chain("a")
    chain.load()

    chain.failed()

    assert harness.log[-1] == "a finalize"
    assert not caplog.records
