"""The threads on which repositories are asked: their own, because a store that hangs holds whoever asks it.

On the threads of `asyncio.to_thread`, which are few, calls of a store that does not answer would keep
everybody else waiting who needs one of them: the metrics, answers that are compressed, other models' loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, ParamSpec, TypeVar

from tritonpy.own_thread import on_own_thread

Args = ParamSpec("Args")
Result = TypeVar("Result")

_MOST_AT_ONCE = 8


class StoreThreads:
    """Makes calls that block, some at once and the others after them; on the loop only.

    Args:
        most_at_once: how many.
    """

    def __init__(self, most_at_once: int = _MOST_AT_ONCE) -> None:
        self._places = asyncio.Semaphore(most_at_once)

    async def call(self, function: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
        """Call a function, and return what it returns or raise what it raises."""
        async with self._places:
            return await on_own_thread(partial(function, *args, **named), "model-repository")


class SharedCall(Generic[Result]):
    """One call for all who ask while the call before it is made; on the loop only.

    However many ask, two are under way at most, one after the other. Nobody is given what was found before
    he asked.

    Args:
        function: what is called; may block.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._current: asyncio.Task[Result] | None = None
        self._next: asyncio.Task[Result] | None = None

    async def get(self) -> Result:
        """What a call returns that has not begun yet, or what it raises."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._call_after(self._current))
            self._next.add_done_callback(_mind)
        # Whoever goes away leaves it to the others.
        return await asyncio.shield(self._next)

    async def _call_after(self, before: asyncio.Task[Result] | None) -> Result:
        if before is not None:
            await asyncio.wait([before])
        self._current, self._next = self._next, None
        return await on_own_thread(self._function, "model-repository")


def _mind(call: asyncio.Task[Result]) -> None:
    if not call.cancelled():
        call.exception()  # perhaps nobody is left to be told
