"""An event loop whose time is a number: it passes only when there is nothing to do, and at once."""

from __future__ import annotations

import asyncio
import functools
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _Jump(selectors.DefaultSelector):
    """Where a loop would sleep, its clock is put forward instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen again, and the simulation is not over")
        if timeout > 0:
            self.loop.on_rest()
            self.loop.now_ns += max(1, math.ceil(timeout * 1e9))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks as any loop does; `call_later` costs no time.

    Attributes:
        now_ns: its clock.
        on_rest: called when everything that is due has been done, before time passes.
    """

    def __init__(self) -> None:
        selector = _Jump()
        selector.loop = self
        self.now_ns = 1_000_000_000
        self.on_rest: Callable[[], None] = lambda: None
        super().__init__(selector)

    def time(self) -> float:
        return self.now_ns / 1e9

    def clock_ns(self) -> int:
        return self.now_ns


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, Result]]) -> Result:
    """Run `main` on a loop of its own until it is over; what it has left running is cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.run_until_complete(_cancel_all())
        loop.close()


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def in_virtual_time(test: Callable[Given, Awaitable[None]]) -> Callable[Given, None]:
    """Run a test on a loop of its own."""

    @functools.wraps(test)
    def started(*args: Given.args, **kwargs: Given.kwargs) -> None:
        async def main(_: VirtualLoop) -> None:
            await test(*args, **kwargs)

        run(main)

    return started


async def turns() -> None:
    """Let the loop do everything that is due."""
    for _ in range(5):
        await asyncio.sleep(0)
