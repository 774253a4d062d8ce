from __future__ import annotations

import asyncio
import threading

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.lifecycle.agents.steps import AgentSteps
from tritonpy_sdk.testing import until_async


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
