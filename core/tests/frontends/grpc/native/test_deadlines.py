"""Deadlines of calls, in a time that is a number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tritonpy.frontends.grpc.native.deadlines import Deadlines
from tritonpy_sdk.testing import until_async

from ....simulator.virtual_loop import VirtualLoop, run

DAY = 86_400.0


class Call:
    """Notes when it is told."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.told_after: float | None = None

    def on_deadline(self) -> None:
        assert self.told_after is None
        self.told_after = self._loop.time() - self._began


def waiting(test: Callable[[Deadlines], Awaitable[None]]) -> None:
    async def main(_: VirtualLoop) -> None:
        await test(Deadlines())

    run(main)


@pytest.mark.parametrize(
    ("timeout_s", "late_s"),
    [(0.0, 0.01), (0.005, 0.01), (0.5, 0.01), (5, 0.1), (100, 1), (5000, 60), (DAY, 60)],
)
def test_a_call_is_told_a_moment_after_its_time(timeout_s: float, late_s: float) -> None:
    async def test(deadlines: Deadlines) -> None:
        call = Call()
        assert deadlines.add(call, timeout_s)
        await asyncio.sleep(timeout_s + 2 * late_s)
        assert call.told_after is not None
        assert timeout_s <= call.told_after <= timeout_s + late_s * 1.001

    waiting(test)


def test_earlier_deadlines_are_told_earlier_whenever_they_were_added() -> None:
    async def test(deadlines: Deadlines) -> None:
        calls = {timeout_s: Call() for timeout_s in (30, 3, 0.3, 20, 2, 0.2)}
        for timeout_s, call in calls.items():
            deadlines.add(call, timeout_s)
        await asyncio.sleep(60)
        told = {timeout_s: call.told_after or 0.0 for timeout_s, call in calls.items()}
        assert sorted(told, key=lambda timeout_s: told[timeout_s]) == sorted(calls)

    waiting(test)


def test_a_call_that_ends_in_time_is_not_told() -> None:
    async def test(deadlines: Deadlines) -> None:
        ended, late = Call(), Call()
        at = deadlines.add(ended, 1)
        deadlines.add(late, 1)
        deadlines.discard(ended, at)
        await asyncio.sleep(2)
        assert ended.told_after is None
        assert late.told_after is not None
        deadlines.discard(late, at)  # which is over

    waiting(test)


def test_what_is_further_away_than_a_day_is_left_to_the_client() -> None:
    async def test(deadlines: Deadlines) -> None:
        call = Call()
        assert deadlines.add(call, 2 * DAY) == 0
        await asyncio.sleep(3 * DAY)
        assert call.told_after is None

    waiting(test)


def test_many_calls_that_end_in_time_leave_little_behind() -> None:
    async def test(deadlines: Deadlines) -> None:
        for number in range(20_000):
            call = Call()
            deadlines.discard(call, deadlines.add(call, 0.5 + number * 4))
        assert len(deadlines._times) < 3000
        for _ in range(2000):
            call = Call()
            deadlines.discard(call, deadlines.add(call, 30))
        assert len(deadlines._times) < 3000

    waiting(test)


def test_nobody_is_told_after_the_stop() -> None:
    async def test(deadlines: Deadlines) -> None:
        call = Call()
        deadlines.add(call, 1)
        deadlines.stop()
        await asyncio.sleep(2)
        assert call.told_after is None

    waiting(test)


def busy(seconds: float) -> None:
    """Make the loop late, as load does."""
    time.sleep(seconds)


def test_calls_that_are_due_at_once_are_told_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed, as on Windows")

    async def main() -> None:
        deadlines = Deadlines()
        calls = []
        for _ in range(100):
            for timeout_s in (0.02, 0.0):
                calls.append(Call())
                deadlines.add(calls[-1], timeout_s)
            busy(0.003)
            await asyncio.sleep(0)
        await until_async(lambda: all(call.told_after is not None for call in calls))

    uvloop.run(main())
