from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.config.load import parse_config
from tritonpy.errors import ErrorCode, Internal, InvalidArg, NotFound, TritonError
from tritonpy.lifecycle.agents.chain import AgentChain, AgentSteps, check_transition
from tritonpy.plugin import RepoAgentModel
from tritonpy_sdk.testing import until_async

from .recorders import Harness, refuse

ACTIONS = ("LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


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


class FakeChain:
    """A chain that writes down what it is told; a step that is in `gates` waits there."""

    name = "m"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[str, threading.Event] = {}
        self.begun = threading.Event()
        self.error: Exception | None = None

    def load(self) -> None:
        self._note("load")
        if self.error is not None:
            raise self.error

    def give_up(self) -> None:
        self.log.append("give up")

    def loaded(self) -> None:
        self._note("loaded")

    def failed(self) -> None:
        self._note("failed")

    def unload(self) -> None:
        self._note("unload")

    def unloaded(self) -> None:
        self._note("unloaded")

    def _note(self, step: str) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.log.append(step)
        if step in self.gates:
            self.begun.set()
            assert self.gates[step].wait(20)
            self.log.append(f"{step} is over")


@pytest.fixture
def chain() -> FakeChain:
    return FakeChain()


def steps_of(chain: FakeChain, patience_s: float = 20.0) -> AgentSteps:
    return AgentSteps(chain, patience_s)  # type: ignore[arg-type]


async def has_begun(chain: FakeChain) -> None:
    assert await asyncio.to_thread(chain.begun.wait, 20)


async def test_a_life_takes_its_steps_in_order(chain: FakeChain) -> None:
    steps = steps_of(chain)

    await steps.load()
    await steps.loaded()
    await steps.unload()
    await steps.unloaded()

    assert chain.log == ["load", "loaded", "unload", "unloaded"]


async def test_a_refusal_reaches_whoever_loads(chain: FakeChain) -> None:
    chain.error = InvalidArg("wrong digest")

    with pytest.raises(InvalidArg, match="wrong digest"):
        await steps_of(chain).load()


async def test_a_step_that_was_asked_for_early_waits_for_its_turn(chain: FakeChain) -> None:
    chain.gates["loaded"] = threading.Event()
    steps = steps_of(chain)
    await steps.load()
    both = [asyncio.create_task(steps.loaded()), asyncio.create_task(steps.unload())]
    await has_begun(chain)

    assert chain.log == ["load", "loaded"]
    chain.gates["loaded"].set()
    await asyncio.gather(*both)
    assert chain.log == ["load", "loaded", "loaded is over", "unload"]


async def test_the_next_step_waits_for_the_one_before_it_though_nobody_else_does(chain: FakeChain) -> None:
    chain.gates["loaded"] = threading.Event()
    steps = steps_of(chain)
    await steps.load()
    task = asyncio.create_task(steps.loaded())
    await has_begun(chain)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    unload = asyncio.create_task(steps.unload())
    await asyncio.sleep(0.01)

    assert chain.log == ["load", "loaded"]
    chain.gates["loaded"].set()
    await unload
    assert chain.log == ["load", "loaded", "loaded is over", "unload"]


async def test_a_load_that_is_cancelled_calls_no_more_agents_and_is_told_of_when_it_is_over(
    chain: FakeChain,
) -> None:
    chain.gates["load"] = threading.Event()
    chain.error = InvalidArg("of no use to anybody any more")
    steps = steps_of(chain)
    task = asyncio.create_task(steps.load())
    await has_begun(chain)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    failed = asyncio.create_task(steps.failed())
    await asyncio.sleep(0.01)

    assert chain.log == ["load", "give up"]
    chain.gates["load"].set()
    await failed
    assert chain.log == ["load", "give up", "load is over", "failed"]


async def test_a_step_that_takes_too_long_is_named_in_the_log_and_holds_nobody_up(
    chain: FakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    chain.gates["unload"] = threading.Event()
    steps = steps_of(chain, patience_s=0.02)
    await steps.load()

    await steps.unload()
    await steps.unloaded()

    assert [record.message for record in caplog.records] == [
        "repository agents of model 'm' are still busy with UNLOAD after 0.02 s; they are left alone with it"
    ]
    chain.gates["unload"].set()
    await until_async(lambda: chain.log == ["load", "unload", "unload is over", "unloaded"])


async def test_agents_that_were_late_are_waited_for_again_when_they_have_caught_up(chain: FakeChain) -> None:
    chain.gates = {"loaded": threading.Event(), "unload": threading.Event()}
    steps = steps_of(chain, patience_s=0.02)
    await steps.load()
    await steps.loaded()
    steps._patience_s = 20.0
    chain.gates["loaded"].set()
    await until_async(lambda: steps._last is not None and steps._last.done())
    chain.begun.clear()

    unload = asyncio.create_task(steps.unload())
    await has_begun(chain)

    assert not unload.done()
    chain.gates["unload"].set()
    await unload
    assert chain.log[-1] == "unload is over"


async def test_a_load_that_goes_on_after_it_was_given_up_is_what_the_log_names(
    chain: FakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    chain.gates["load"] = threading.Event()
    steps = steps_of(chain, patience_s=0.02)
    task = asyncio.create_task(steps.load())
    await has_begun(chain)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await steps.failed()

    assert "still busy with LOAD after" in caplog.text
    chain.gates["load"].set()
    await until_async(lambda: chain.log[-1] == "failed")


async def test_a_load_may_take_longer_than_that(chain: FakeChain) -> None:
    chain.gates["load"] = threading.Event()
    task = asyncio.create_task(steps_of(chain, patience_s=0.01).load())
    await has_begun(chain)
    await asyncio.sleep(0.03)

    assert not task.done()
    chain.gates["load"].set()
    await task
