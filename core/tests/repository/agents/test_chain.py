from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.config.load import parse_config
from tritonpy.config.schema import ModelConfig
from tritonpy.errors import ErrorCode, Internal, InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.plugin import RepoAgent, RepoAgentModel, hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.agents.chain import AgentChain, check_transition
from tritonpy.repository.agents.repository_agents import RepositoryAgents

ACTIONS = ("LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE")


class Recorder:
    """An agent that writes down what it is told, and does what a test puts into `on`.

    Attributes:
        on: what to do, by action or hook.
    """

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.on: dict[str, Callable[[RepoAgentModel], object]] = {}
        self._log = log

    @hookimpl
    def repo_agent_initialize(self, agent: RepoAgent) -> None:
        self._note("initialize", None)

    @hookimpl
    def repo_agent_finalize(self, agent: RepoAgent) -> None:
        self._note("finalize", None)

    @hookimpl
    def repo_agent_model_initialize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        self._note("model_initialize", model)

    @hookimpl
    def repo_agent_model_finalize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        self._note("model_finalize", model)

    @hookimpl
    def repo_agent_model_action(self, agent: RepoAgent, model: RepoAgentModel, action: str) -> None:
        assert agent.name == self.name
        assert model.action == action
        self._note(action, model)

    def _note(self, what: str, model: Any) -> None:
        self._log.append(f"{self.name} {what}")
        if what in self.on:
            self.on[what](model)


class Harness:
    """Three agents a, b and c, and chains of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: list[str] = []
        manager = PluginManager("repo_agents", discover=False)
        self.agents: dict[str, Recorder] = {}
        for name in "abc":
            self.agents[name] = Recorder(name, self.log)
            manager.register(name, self.agents[name])
        self.finder = RepositoryAgents(manager, PluginManager("loaders", discover=False), "/no/agents")

    def chain(self, agents: str = "abc", *, config: str = "", name: str = "m") -> AgentChain:
        blocks = " ".join(f'agents {{ name: "{agent}" }}' for agent in agents)
        parsed = parse_config(f"{config} model_repository_agents {{ {blocks} }}", "test")
        return AgentChain(self.finder, name, self.directory, parsed, self.read_config)

    @staticmethod
    def read_config(directory: Path) -> ModelConfig | None:
        path = directory / "config.pbtxt"
        return parse_config(path.read_text(), path) if path.exists() else None

    def take_log(self) -> list[str]:
        taken, self.log[:] = list(self.log), []
        return taken


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def refuse(model: RepoAgentModel) -> None:
    raise InvalidArg("refused")


def test_actions_come_in_the_order_of_the_life_of_a_model(harness: Harness) -> None:
    chain = harness.chain("abc")

    chain.load()
    assert harness.take_log() == [
        *("a initialize", "a model_initialize", "a LOAD"),
        *("b initialize", "b model_initialize", "b LOAD"),
        *("c initialize", "c model_initialize", "c LOAD"),
    ]
    chain.loaded()
    assert harness.take_log() == ["c LOAD_COMPLETE", "b LOAD_COMPLETE", "a LOAD_COMPLETE"]
    chain.unload()
    assert harness.take_log() == ["a UNLOAD", "b UNLOAD", "c UNLOAD"]
    chain.unloaded()
    assert harness.take_log() == [
        *("c UNLOAD_COMPLETE", "b UNLOAD_COMPLETE", "a UNLOAD_COMPLETE"),
        *("c model_finalize", "c finalize"),
        *("b model_finalize", "b finalize"),
        *("a model_finalize", "a finalize"),
    ]


def test_an_agent_that_refuses_stops_the_load_and_all_that_were_called_are_told(harness: Harness) -> None:
    harness.agents["b"].on["LOAD"] = refuse
    chain = harness.chain("abc")

    with pytest.raises(InvalidArg, match=r"^refused$"):
        chain.load()

    assert harness.log == [
        *("a initialize", "a model_initialize", "a LOAD"),
        *("b initialize", "b model_initialize", "b LOAD"),
        *("b LOAD_FAIL", "a LOAD_FAIL"),
        *("b model_finalize", "b finalize", "a model_finalize", "a finalize"),
    ]


def test_a_model_that_cannot_be_loaded_is_told_in_reverse_order_and_once(harness: Harness) -> None:
    chain = harness.chain("ab")
    chain.load()
    harness.take_log()

    chain.failed()
    chain.failed()

    assert harness.log == [
        *("b LOAD_FAIL", "a LOAD_FAIL"),
        *("b model_finalize", "b finalize", "a model_finalize", "a finalize"),
    ]


def test_an_agent_that_fails_to_initialize_is_not_called_again_and_others_are_told(harness: Harness) -> None:
    harness.agents["b"].on["initialize"] = refuse

    with pytest.raises(InvalidArg, match="refused"):
        harness.chain("ab").load()

    assert harness.take_log() == [
        *("a initialize", "a model_initialize", "a LOAD", "b initialize"),
        *("a LOAD_FAIL", "a model_finalize", "a finalize"),
    ]
    del harness.agents["b"].on["initialize"]
    harness.chain("b").load()
    assert harness.log == ["b initialize", "b model_initialize", "b LOAD"]


def test_an_agent_that_fails_to_initialize_for_a_model_is_finalized_without_it(harness: Harness) -> None:
    harness.agents["b"].on["model_initialize"] = refuse

    with pytest.raises(InvalidArg, match="refused"):
        harness.chain("ab").load()

    assert harness.log == [
        *("a initialize", "a model_initialize", "a LOAD"),
        *("b initialize", "b model_initialize", "b finalize"),
        *("a LOAD_FAIL", "a model_finalize", "a finalize"),
    ]


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (NotFound("no licence"), ErrorCode.NOT_FOUND, "no licence"),
        (
            ValueError("three"),
            ErrorCode.INTERNAL,
            "repository agent 'a' failed in LOAD of model 'm': ValueError: three",
        ),
        (
            SystemExit(3),
            ErrorCode.INTERNAL,
            "repository agent 'a' failed in LOAD of model 'm': SystemExit: 3",
        ),
    ],
)
def test_what_an_agent_raises_keeps_its_code_or_names_the_agent(
    harness: Harness, raised: BaseException, code: ErrorCode, text: str
) -> None:
    def fail(model: RepoAgentModel) -> None:
        raise raised

    harness.agents["a"].on["LOAD"] = fail

    with pytest.raises(TritonError) as caught:
        harness.chain("a").load()

    assert (caught.value.code, str(caught.value)) == (code, text)


@pytest.mark.parametrize(
    "action", ["LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE", "model_finalize", "finalize"]
)
def test_what_is_raised_after_load_is_logged_and_stops_nobody(
    harness: Harness, caplog: pytest.LogCaptureFixture, action: str
) -> None:
    for agent in harness.agents.values():
        agent.on[action] = refuse
    chain = harness.chain("ab")

    chain.load()
    chain.loaded()
    chain.unload()
    chain.unloaded()

    assert {f"a {action}", f"b {action}"} <= set(harness.log)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert all(f"repository agent '{name}' failed" in caplog.text for name in "ab")
    assert "refused" in caplog.text


def test_what_is_raised_in_load_fail_is_logged_and_the_reason_stays(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.agents["a"].on["LOAD_FAIL"] = lambda model: 1 / 0
    harness.agents["b"].on["LOAD"] = refuse

    with pytest.raises(InvalidArg, match="refused"):
        harness.chain("ab").load()

    assert "repository agent 'a' failed in LOAD_FAIL of model 'm'" in caplog.text
    assert harness.log[-1] == "a finalize"


def test_an_agent_named_twice_acts_twice_with_the_parameters_of_each(harness: Harness) -> None:
    seen = []
    harness.agents["a"].on["LOAD"] = lambda model: seen.append(dict(model.parameters))
    parsed = parse_config(
        'model_repository_agents { agents [ { name: "a" parameters { key: "k" value: "1" } }, '
        '{ name: "a" parameters { key: "k" value: "2" } } ] }',
        "test",
    )

    AgentChain(harness.finder, "m", harness.directory, parsed, harness.read_config).load()

    assert seen == [{"k": "1"}, {"k": "2"}]
    assert harness.log.count("a initialize") == 1


def test_an_agent_lives_from_its_first_model_to_its_last(harness: Harness) -> None:
    first, second = harness.chain("a", name="first"), harness.chain("a", name="second")

    for chain in (first, second):
        chain.load()
        chain.loaded()
    for chain in (first, second):
        chain.unload()
        chain.unloaded()
    harness.chain("a").load()

    assert [line for line in harness.log if "model" not in line and line.endswith("ialize")] == [
        "a initialize",
        "a initialize",
    ]
    assert [line for line in harness.log if line == "a finalize"] == ["a finalize"]


def test_a_model_of_which_a_chain_is_told_has_state_of_its_own(harness: Harness) -> None:
    def remember(model: RepoAgentModel) -> None:
        model.state = model.name

    seen: list[object] = []
    harness.agents["a"].on = {"LOAD": remember, "LOAD_COMPLETE": lambda model: seen.append(model.state)}
    chains = [harness.chain("a", name=name) for name in ("one", "two")]
    for chain in chains:
        chain.load()
    for chain in chains:
        chain.loaded()

    assert seen == ["one", "two"]


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


# What may follow what


@given(st.lists(st.sampled_from(ACTIONS), max_size=6))
def test_only_two_lives_are_possible(actions: list[Any]) -> None:
    lives = (["LOAD", "LOAD_FAIL"], ["LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"])
    current = None
    lived: list[str] = []
    for action in actions:
        is_next = any(life[: len(lived) + 1] == [*lived, action] for life in lives)
        if is_next:
            check_transition(current, action)
            current = action
            lived.append(action)
            continue
        with pytest.raises(Internal) as caught:
            check_transition(current, action)
        wanted = f"TRITONREPOAGENT_ACTION_{action}"
        assert str(caught.value) == (
            f"Unexpected lifecycle start state {wanted}"
            if current is None
            else f"Unexpected lifecycle state transition from TRITONREPOAGENT_ACTION_{current} to {wanted}"
        )


@pytest.mark.parametrize("step", ["unload", "unloaded"])
def test_a_step_out_of_turn_is_refused_before_any_agent_hears_of_it(harness: Harness, step: str) -> None:
    chain = harness.chain("ab")
    chain.load()
    harness.take_log()

    with pytest.raises(
        Internal, match="Unexpected lifecycle state transition from TRITONREPOAGENT_ACTION_LOAD"
    ):
        getattr(chain, step)()

    assert harness.log == []
    chain.failed()


# On several threads


def test_a_load_that_is_given_up_calls_no_more_agents(harness: Harness) -> None:
    begun, gate = threading.Event(), threading.Event()
    harness.agents["a"].on["LOAD"] = lambda model: begun.set() or gate.wait(40)
    chain = harness.chain("ab")
    outcome: list[BaseException] = []

    def load() -> None:
        try:
            chain.load()
        except TritonError as error:
            outcome.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    begun.wait(20)
    chain.give_up()
    gate.set()
    thread.join(20)

    assert [str(error) for error in outcome] == ["the load of model 'm' was given up"]
    assert "b LOAD" not in harness.log
    assert harness.log[-3:] == ["a LOAD_FAIL", "a model_finalize", "a finalize"]


def test_models_that_come_and_go_on_many_threads_never_meet_an_agent_that_is_not_there(
    harness: Harness,
) -> None:
    is_there = False
    wrong: list[str] = []

    def come(model: RepoAgentModel) -> None:
        nonlocal is_there
        if is_there:
            wrong.append("initialized twice")
        is_there = True

    def go(model: RepoAgentModel) -> None:
        nonlocal is_there
        is_there = False

    def act(model: RepoAgentModel) -> None:
        if not is_there:
            wrong.append("called while it was not there")

    harness.agents["a"].on = {"initialize": come, "finalize": go, "LOAD": act, "UNLOAD_COMPLETE": act}

    def live(number: int) -> None:
        for _ in range(50):
            chain = harness.chain("a", name=str(number))
            chain.load()
            chain.loaded()
            chain.unload()
            chain.unloaded()

    threads = [threading.Thread(target=live, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not wrong
    assert not is_there
    assert harness.log.count("a LOAD") == 200
