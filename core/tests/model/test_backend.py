"""Who has the turn to run a loading hook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tritonpy.model.backend import LoadTurn


class Loads:
    """Loads that take a turn and end it when they are told to.

    Attributes:
        running: those that have the turn.
        aside: those that wait aside.
        may_come_back: set while those that have waited get in again.
    """

    def __init__(self) -> None:
        self.turn = LoadTurn()
        self.running: list[str] = []
        self.aside: list[str] = []
        self.may_come_back = asyncio.Event()
        self.may_come_back.set()
        self._numbers: dict[str, int] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        if name not in self._numbers:
            self._numbers[name] = self.turn.number()
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.ensure_future(self._run(name))
        await settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.tasks[name]
        await settle()

    async def _run(self, name: str) -> None:
        async with self.turn.take(self._numbers[name], lambda: self._wait(name)):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    @asynccontextmanager
    async def _wait(self, name: str) -> AsyncIterator[None]:
        self.aside.append(name)
        try:
            yield
        finally:
            self.aside.remove(name)
        await self.may_come_back.wait()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def loads() -> Loads:
    return Loads()


async def test_one_has_the_turn_and_the_others_wait_aside(loads: Loads) -> None:
    await loads.begin("a")
    assert (loads.running, loads.aside) == (["a"], [])
    for name in "bc":
        await loads.begin(name)
    assert (loads.running, loads.aside) == (["a"], ["b", "c"])

    await loads.end("a")
    assert (loads.running, loads.aside) == (["b"], ["c"])
    await loads.end("b")
    await loads.end("c")
    await loads.begin("d")
    assert (loads.running, loads.aside) == (["d"], [])


async def test_the_load_that_began_first_goes_on_before_others_begin(loads: Loads) -> None:
    for name in "abc":
        await loads.begin(name)
    await loads.end("a")
    await loads.begin("a")  # its next hook
    assert (loads.running, loads.aside) == (["b"], ["c", "a"])

    await loads.end("b")
    assert (loads.running, loads.aside) == (["a"], ["c"])


async def test_one_that_is_given_up_takes_no_turn(loads: Loads) -> None:
    for name in "abcd":
        await loads.begin(name)
    await loads.cancel("b")
    assert loads.aside == ["c", "d"]
    loads.may_come_back.clear()
    await loads.end("a")
    assert (loads.running, loads.aside) == ([], ["d"])  # c has the turn, and is not back yet

    await loads.cancel("c")
    loads.may_come_back.set()
    await settle()
    assert (loads.running, loads.aside) == (["d"], [])
    await loads.cancel("d")
    await loads.begin("e")
    assert loads.running == ["e"]
