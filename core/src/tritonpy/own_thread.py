"""Work that may block for as long as it likes: on a thread that nobody else waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


async def on_own_thread(
    work: Callable[[], Result], name: str, then: Callable[[Result], None] | None = None
) -> Result:
    """Do blocking work on a thread of its own, and return what it returns.

    The threads of `asyncio.to_thread` are few and everybody's. This one is the work's alone, and a daemon:
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
            if not done.done():  # nobody waits any more
                set_outcome(outcome)

        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(on_loop)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
