"""How many versions load at once, and what waiting models do about it."""

from __future__ import annotations

import asyncio

import pytest
from tritonpy.lifecycle.loading.gate import LoadGate


class Loads:
    """Loads that tests begin and end by hand."""

    def __init__(self, gate: LoadGate) -> None:
        self.gate = gate
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.ensure_future(self._load(name))
        await settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._tasks[name]
        await settle()

    async def _load(self, name: str) -> None:
        async with self.gate.enter((name, 1)):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def loads() -> Loads:
    return Loads(LoadGate(2))


async def test_no_more_load_at_once_than_there_are_places_and_the_first_come_first(loads: Loads) -> None:
    for name in "abcd":
        await loads.begin(name)
    assert loads.running == ["a", "b"]

    await loads.end("b")
    assert loads.running == ["a", "c"]
    await loads.end("a")
    assert loads.running == ["c", "d"]


async def test_a_load_that_is_cancelled_gives_its_place_back(loads: Loads) -> None:
    for name in "abcd":
        await loads.begin(name)

    await loads.cancel("c")  # it waits
    await loads.cancel("a")  # it runs

    assert loads.running == ["b", "d"]


async def test_a_load_that_waits_for_another_one_gives_its_place_away_until_that_is_done(
    loads: Loads,
) -> None:
    for name in "abcd":
        await loads.begin(name)
    waits = loads.gate.step_aside(("a", 1))

    await waits.__aenter__()
    await settle()
    assert loads.running == ["a", "b", "c"]  # a is no more than waiting

    back = asyncio.ensure_future(waits.__aexit__(None, None, None))
    await settle()
    assert not back.done()  # d was there before it
    await loads.end("b")
    assert loads.running == ["a", "c", "d"]
    await loads.end("c")
    await back
    await loads.begin("e")
    assert loads.running == ["a", "d"]


async def test_instances_of_one_load_that_wait_at_once_give_away_one_place(loads: Loads) -> None:
    for name in "abcd":
        await loads.begin(name)
    first, second = loads.gate.step_aside(("a", 1)), loads.gate.step_aside(("a", 1))

    await first.__aenter__()
    await second.__aenter__()
    await settle()
    assert loads.running == ["a", "b", "c"]

    await first.__aexit__(None, None, None)  # the other one still waits
    back = asyncio.ensure_future(second.__aexit__(None, None, None))
    for name in "bcd":
        await loads.end(name)
    await back
    for name in "ef":
        await loads.begin(name)
    assert loads.running == ["a", "e"]


async def test_a_load_that_ends_while_it_waits_leaves_no_place_behind_and_takes_none(loads: Loads) -> None:
    for name in "abc":
        await loads.begin(name)
    waits = loads.gate.step_aside(("a", 1))
    await waits.__aenter__()
    await settle()
    assert loads.running == ["a", "b", "c"]

    await loads.cancel("a")
    await waits.__aexit__(None, None, None)
    for name in "de":
        await loads.begin(name)
    assert loads.running == ["b", "c"]
    await loads.end("b")
    await loads.end("c")
    assert loads.running == ["d", "e"]


async def test_one_that_gives_up_waiting_for_its_place_takes_none(loads: Loads) -> None:
    for name in "abc":
        await loads.begin(name)
    waits = loads.gate.step_aside(("a", 1))
    await waits.__aenter__()
    await settle()
    back = asyncio.ensure_future(waits.__aexit__(None, None, None))
    await settle()
    back.cancel()
    await asyncio.wait((back,))

    for name in "abc":
        await loads.end(name)
    for name in "def":
        await loads.begin(name)
    assert loads.running == ["d", "e"]


async def test_one_that_is_given_up_while_it_waits_does_not_wait_for_a_place(loads: Loads) -> None:
    for name in "abc":
        await loads.begin(name)
    waits = loads.gate.step_aside(("a", 1))
    await waits.__aenter__()
    await settle()
    assert loads.running == ["a", "b", "c"]

    error = asyncio.CancelledError()
    back = asyncio.ensure_future(waits.__aexit__(asyncio.CancelledError, error, None))
    await settle()
    assert back.done()
    assert not back.result()

    for name in "abc":
        await loads.end(name)
    for name in "def":
        await loads.begin(name)
    assert loads.running == ["d", "e"]


async def test_one_that_waits_in_vain_takes_its_place_again(loads: Loads) -> None:
    await loads.begin("a")
    with pytest.raises(LookupError):
        async with loads.gate.step_aside(("a", 1)):
            raise LookupError

    for name in "bc":
        await loads.begin(name)
    assert loads.running == ["a", "b"]


async def test_a_version_that_is_not_being_loaded_has_nothing_to_give_away(loads: Loads) -> None:
    for name in "abc":
        await loads.begin(name)

    async with loads.gate.step_aside(("served", 1)), loads.gate.step_aside(("a", 2)):
        await settle()
        assert loads.running == ["a", "b"]
