"""Repository agents around loads, reloads and unloads of a manager."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound
from tritonpy.plugin import RepoAgent, RepoAgentModel, hookimpl
from tritonpy_sdk.testing import until_async

AGENTS = 'model_repository_agents { agents [ { name: "one" }, { name: "two" } ] }'


class Agent:
    """Writes down the actions it is told, and does what a test puts into `on`."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.on: dict[str, Callable[[RepoAgentModel], object]] = {}
        self._log = log

    @hookimpl
    def repo_agent_model_action(self, agent: RepoAgent, model: RepoAgentModel, action: str) -> None:
        self._log.append(f"{self.name} {action}")
        if action in self.on:
            self.on[action](model)

    @hookimpl
    def repo_agent_finalize(self, agent: RepoAgent) -> None:
        self._log.append(f"{self.name} finalize")


class World:
    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.log: list[str] = []
        self.one, self.two = Agent("one", self.log), Agent("two", self.log)
        harness.agents.register("one", self.one)
        harness.agents.register("two", self.two)

    def take_log(self) -> list[str]:
        taken, self.log[:] = list(self.log), []
        return taken


@pytest.fixture
def world(harness: Any) -> World:
    return World(harness)


LOADED = ["one LOAD", "two LOAD", "two LOAD_COMPLETE", "one LOAD_COMPLETE"]
UNLOADED = [
    *("one UNLOAD", "two UNLOAD", "two UNLOAD_COMPLETE", "one UNLOAD_COMPLETE"),
    *("two finalize", "one finalize"),
]


def refuse(model: RepoAgentModel) -> None:
    raise InvalidArg("refused")


def rewrite(text: str, made: list[Path] | None = None) -> Callable[[RepoAgentModel], None]:
    """An action that hands over a copy of the model in which `model.txt` says something else."""

    def act(model: RepoAgentModel) -> None:
        copy = model.acquire_directory()
        shutil.copytree(model.directory, copy, dirs_exist_ok=True)
        (copy / "1/model.txt").write_text(text)
        model.directory = copy
        if made is not None:
            made.append(copy)

    return act


async def test_agents_accompany_a_model_from_its_load_to_its_end(world: World) -> None:
    world.harness.write("m", config=AGENTS)

    await world.harness.manager.load("m")
    assert world.take_log() == LOADED
    await world.harness.manager.unload("m")
    await until_async(lambda: len(world.log) == 6)

    assert world.log == UNLOADED


async def test_the_end_comes_when_the_last_request_is_answered(world: World) -> None:
    made: list[Path] = []
    world.one.on["LOAD"] = rewrite("changed", made)
    world.harness.write("m", config=AGENTS)
    await world.harness.manager.load("m")
    model = world.harness.served("m")
    model.idle.clear()
    world.take_log()

    await world.harness.manager.unload("m")
    await until_async(lambda: len(world.log) == 2)

    assert world.log == ["one UNLOAD", "two UNLOAD"]
    assert made[0].exists()
    model.idle.set()
    await until_async(lambda: len(world.log) == 6 and not made[0].exists())
    assert world.log == UNLOADED


async def test_what_an_agent_hands_over_is_what_is_loaded(world: World) -> None:
    made: list[Path] = []
    world.one.on["LOAD"] = rewrite("changed", made)
    seen: list[Path] = []
    world.two.on["LOAD"] = lambda model: seen.append(model.directory)
    world.harness.write("m", config=AGENTS)

    await world.harness.manager.load("m")

    assert world.harness.served("m").content == "changed"
    assert world.harness.served("m").path == made[0] == seen[0]
    assert world.harness.states("m") == {"1": ("READY", "")}


async def test_the_original_files_are_what_counts_as_changed(world: World) -> None:
    world.one.on["LOAD"] = rewrite("changed")
    world.harness.write("m", config=AGENTS)
    await world.harness.manager.load("m")

    await world.harness.manager.load("m")
    assert world.log.count("one LOAD") == 1

    world.harness.write("m", "second", config=AGENTS)
    await world.harness.manager.load("m")
    assert world.log.count("one LOAD") == 2


async def test_a_refusal_fails_the_load_with_its_reason_and_no_other_model(world: World) -> None:
    world.harness.write("m", config=AGENTS)
    world.harness.write("plain")
    world.two.on["LOAD"] = refuse

    with pytest.raises(
        Internal,
        match=r"^failed to load 'm', failed to poll from model repository: Invalid argument: refused$",
    ):
        await world.harness.manager.load("m")
    await world.harness.manager.load("plain")

    assert world.log == [
        *("one LOAD", "two LOAD", "two LOAD_FAIL", "one LOAD_FAIL"),
        *("two finalize", "one finalize"),
    ]
    assert world.harness.states("plain") == {"1": ("READY", "")}


async def test_a_change_that_an_agent_does_not_find_is_no_model_that_has_gone(world: World) -> None:
    def miss(model: RepoAgentModel) -> None:
        raise NotFound("no key for this model")

    world.one.on["LOAD"] = miss
    world.harness.write("m", config=AGENTS)

    await world.harness.manager.reload_soon(world.harness.found("m"), only_wanted=False)

    assert "Not found: no key for this model" in str(world.harness.registry.index())


async def test_a_model_that_fails_after_its_agents_is_told_to_them(world: World) -> None:
    made: list[Path] = []
    world.one.on["LOAD"] = rewrite("broken", made)
    world.harness.write("m", config=AGENTS)

    with pytest.raises(InvalidArg, match="boom"):
        await world.harness.manager.load("m")

    assert world.log == [
        *("one LOAD", "two LOAD", "two LOAD_FAIL", "one LOAD_FAIL"),
        *("two finalize", "one finalize"),
    ]
    assert not made[0].exists()


async def test_a_configuration_that_is_no_good_is_told_to_agents_as_a_failure(world: World) -> None:
    world.harness.write("m", config=f"max_batch_size: -1 {AGENTS}")

    with pytest.raises(Internal, match="max_batch_size"):
        await world.harness.manager.load("m")

    assert "one LOAD_FAIL" in world.log


async def test_versions_are_those_of_what_was_handed_over(world: World) -> None:
    def add_version(model: RepoAgentModel) -> None:
        rewrite("first")(model)
        shutil.copytree(model.directory / "1", model.directory / "7")

    world.one.on["LOAD"] = add_version
    world.harness.write("m", config=f"version_policy {{ all {{}} }} {AGENTS}")

    await world.harness.manager.load("m")

    assert set(world.harness.states("m")) == {"1", "7"}


async def test_a_model_without_versions_of_its_own_may_get_them_from_an_agent(world: World) -> None:
    def make(model: RepoAgentModel) -> None:
        path = model.acquire_directory() / "1/model.txt"
        path.parent.mkdir()
        path.write_text("made")
        model.directory = path.parent.parent

    world.one.on["LOAD"] = make
    world.harness.write("m", config=AGENTS)
    shutil.rmtree(world.harness.root / "m/1")

    await world.harness.manager.load("m")

    assert world.harness.served("m").content == "made"


async def test_a_reload_runs_a_chain_beside_the_old_one(world: World) -> None:
    world.harness.write("m", config=AGENTS)
    await world.harness.manager.load("m")
    old = world.harness.served("m")
    old.idle.clear()
    world.take_log()

    world.harness.write("m", "second", config=AGENTS)
    await world.harness.manager.load("m")
    await until_async(lambda: len(world.log) == 6)

    assert [line for line in world.log if "UNLOAD" not in line] == LOADED
    assert [line for line in world.log if "UNLOAD" in line] == ["one UNLOAD", "two UNLOAD"]
    assert world.log.index("one UNLOAD") > world.log.index("two LOAD")
    old.idle.set()
    await until_async(lambda: world.log[-2:] == ["two UNLOAD_COMPLETE", "one UNLOAD_COMPLETE"])
    assert "one finalize" not in world.log


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_reload_that_fails_leaves_the_old_chain_alone(world: World, is_refused: bool) -> None:
    made: list[Path] = []
    world.one.on["LOAD"] = rewrite("first", made)
    world.harness.write("m", config=AGENTS)
    await world.harness.manager.load("m")
    world.take_log()
    world.one.on["LOAD"] = refuse if is_refused else rewrite("broken", made)

    with pytest.raises((Internal, InvalidArg)):
        await world.harness.manager.load("m", force=True)

    assert world.log == (
        ["one LOAD", "one LOAD_FAIL"]
        if is_refused
        else ["one LOAD", "two LOAD", "two LOAD_FAIL", "one LOAD_FAIL"]
    )
    assert world.harness.served("m").content == "first"
    assert made[0].exists()
    assert not any(path.exists() for path in made[1:])


async def test_a_configuration_that_comes_with_a_load_brings_its_agents(world: World) -> None:
    world.harness.write("m", config=AGENTS)
    await world.harness.manager.load("m")
    world.take_log()
    agents = {"agents": [{"name": "two"}]}
    override = json.dumps({"backend": "fake", "model_repository_agents": agents})

    await world.harness.manager.load("m", override)
    await until_async(lambda: "one finalize" in world.log)

    assert [line for line in world.log if line in ("one LOAD", "two LOAD")] == ["two LOAD"]
    assert world.harness.served("m").is_override


async def test_a_configuration_that_comes_with_a_load_wins_over_what_an_agent_writes(world: World) -> None:
    def configure(model: RepoAgentModel) -> None:
        rewrite("changed")(model)
        (model.directory / "config.pbtxt").write_text("version_policy { specific { versions: 3 } }")

    world.one.on["LOAD"] = configure
    world.harness.write("m", config=AGENTS)
    agents = {"agents": [{"name": "one"}]}

    await world.harness.manager.load("m", json.dumps({"backend": "fake", "model_repository_agents": agents}))

    assert world.harness.states("m") == {"1": ("READY", "")}


async def test_files_that_come_with_a_load_are_what_agents_see(world: World) -> None:
    seen: list[str] = []
    world.one.on["LOAD"] = lambda model: seen.append((model.directory / "1/model.txt").read_text())
    agents = {"agents": [{"name": "one"}]}

    await world.harness.manager.load(
        "m",
        json.dumps({"backend": "fake", "model_repository_agents": agents}),
        {"file:1/model.txt": b"brought"},
    )

    assert seen == ["brought"]


async def test_everything_is_taken_down_with_its_agents(world: World) -> None:
    made: list[Path] = []
    world.one.on["LOAD"] = rewrite("changed", made)
    for name in ("m", "n"):
        world.harness.write(name, config=AGENTS)
        await world.harness.manager.load(name)
    world.take_log()

    await world.harness.manager.unload_all()

    assert sorted(world.log) == sorted([*UNLOADED[:4], *UNLOADED])
    assert world.log[-1] in ("one finalize", "two finalize")
    assert not any(path.exists() for path in made)


async def test_a_model_that_still_answers_at_the_end_ends_with_its_agents(world: World) -> None:
    world.harness.write("m", config=AGENTS)
    await world.harness.manager.load("m")
    world.harness.served("m").idle.clear()
    await world.harness.manager.unload("m")

    await world.harness.manager.unload_all()

    assert world.log == [*LOADED, *UNLOADED]


async def test_a_load_under_way_at_the_end_is_given_up_and_its_agents_hear_of_it(world: World) -> None:
    begun, gate = threading.Event(), threading.Event()
    world.one.on["LOAD"] = lambda model: begun.set() or gate.wait(40)
    world.harness.write("m", config=AGENTS)
    load = asyncio.create_task(world.harness.manager.load("m"))
    await asyncio.to_thread(begun.wait, 20)

    stopping = asyncio.create_task(world.harness.manager.stop_loading())
    await asyncio.sleep(0.01)
    gate.set()
    await stopping

    assert world.log == ["one LOAD", "one LOAD_FAIL", "one finalize"]
    assert load.done()
    load.exception()


async def test_agents_that_block_hold_up_nobody_else(world: World) -> None:
    gate = threading.Event()
    world.one.on["LOAD"] = lambda model: gate.wait(40)
    blocked = [f"blocked{number}" for number in range(40)]
    for name in blocked:
        world.harness.write(name, config=AGENTS)
    world.harness.write("plain")
    loads = [asyncio.create_task(world.harness.manager.load(name)) for name in blocked]

    await asyncio.wait_for(world.harness.manager.load("plain"), 20)

    assert not any(load.done() for load in loads)
    gate.set()
    await asyncio.gather(*loads)
