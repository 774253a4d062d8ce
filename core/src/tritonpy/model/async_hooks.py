"""Hooks that are coroutines: their event loop, on the thread that executes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class AsyncHooks:
    """The event loop of an instance, made for its first coroutine; used on one thread.

    What a framework has bound to that thread is there for coroutines, too. Tasks that one leaves behind go on
    while the instance waits for its next execution: they may have requests to answer.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def wait(self, outcome: Awaitable[T]) -> T:
        """Run what a hook returned to its end."""
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def settled() -> T:
            return await outcome

        loop = self._runner.get_loop()
        return _run_until(loop, loop.create_task(settled()))

    def next(self, receive: Callable[[], T]) -> T:
        """Call `receive`, which may block, while tasks that were left behind run; returns what it returns."""
        if self._runner is None or not asyncio.all_tasks(self._runner.get_loop()):
            return receive()
        loop = self._runner.get_loop()
        return _run_until(loop, loop.run_in_executor(None, receive))

    def close(self) -> None:
        """Cancel what still runs, and end the loop."""
        if self._runner is not None:
            self._runner.close()


def _run_until(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> T:
    """Run the loop until a future is done, also if a task that was left behind stops the loop."""
    while not future.done():
        try:
            loop.run_until_complete(future)
        except (
            BaseException
        ):  # SystemExit in such a task is its own affair; what the future raises comes below
            continue
    return future.result()
