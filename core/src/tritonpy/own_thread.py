"""Blocking work on threads of its own, so that a call that hangs delays no other work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Generic, ParamSpec, TypeVar

Args = ParamSpec("Args")
Result = TypeVar("Result")

_MOST_AT_ONCE = 8


async def on_own_thread(
    work: Callable[[], Result], name: str, then: Callable[[Result], None] | None = None
) -> Result:
    """Do blocking work on a thread of its own, and return what it returns.

    The threads of `asyncio.to_thread` are few and shared. This one does only this work, and is a daemon:
    the program can end while it still blocks. Cancelled, the caller goes on and the work is done to its end.

    Args:
        work: raises what shall reach the caller.
        name: of the thread, as debuggers show it.
        then: what the thread goes on with after its result has been handed over.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as exc:
            is_fit = isinstance(exc, Exception) and not isinstance(exc, StopIteration)
            # sys.exit() would end the loop and everything on it, and a StopIteration cannot be awaited.
            error = exc if is_fit else RuntimeError(f"{type(exc).__name__}: {exc}")
            settle(done.set_exception, error)
        else:
            settle(done.set_result, result)
            if then is not None:
                then(result)

    def settle(set_outcome: Callable[..., None], outcome: object) -> None:
        def on_loop() -> None:
            if not done.done():  # cancelled
                set_outcome(outcome)

        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(on_loop)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


class StoreThreads:
    """Calls of repositories, each on a thread of its own and a limited number at once; on the loop only.

    On the threads of `asyncio.to_thread`, which are few, calls of a store that hangs would delay all else
    that needs one of them: metrics, compressed answers, loads of other models.

    Args:
        most_at_once: the number of calls that may be under way.
    """

    def __init__(self, most_at_once: int = _MOST_AT_ONCE) -> None:
        self._places = asyncio.Semaphore(most_at_once)

    async def call(self, function: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
        """Call a function, and return what it returns or raise what it raises."""
        async with self._places:
            return await on_own_thread(partial(function, *args, **named), "model-repository")


class SharedCall(Generic[Result]):
    """One call shared by all callers that come while the call before it is made; on the loop only.

    Two calls are under way at most, one after the other. No caller gets a result from before it asked.

    Args:
        function: what is called; may block.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._current: asyncio.Task[Result] | None = None
        self._next: asyncio.Task[Result] | None = None

    async def get(self) -> Result:
        """Return the result of a call that begins after this one, or raise its error."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._call_after(self._current))
            self._next.add_done_callback(_mind)
        # A caller that is cancelled leaves the call to the others.
        return await asyncio.shield(self._next)

    async def _call_after(self, before: asyncio.Task[Result] | None) -> Result:
        if before is not None:
            await asyncio.wait([before])
        self._current, self._next = self._next, None
        return await on_own_thread(self._function, "model-repository")


def _mind(call: asyncio.Task[Result]) -> None:
    if not call.cancelled():
        call.exception()  # all callers may have gone
