"""Running a model's `async def execute`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

OnDone = Callable[[Any, "BaseException | None"], None]  # Any: what `execute` returned


class Coroutines:
    """The event loop of a model, made when `execute` first returns an awaitable.

    A model that is not decoupled is awaited on the thread that executes. A decoupled one, and one that takes
    several batches at once, runs on a thread of its own, so that its coroutines go on while the next batch is
    taken.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def wait(self, awaitable: Awaitable[Any]) -> Any:  # Any: what `execute` returned
        """Run `awaitable` to its end, here unless the loop has a thread; what it raises is raised."""
        if self._thread is not None:
            outcome, error = asyncio.run_coroutine_threadsafe(_settled(awaitable), self._loop).result()
        else:
            asyncio.set_event_loop(self._loop)
            outcome, error = self._loop.run_until_complete(_settled(awaitable))
        if error is not None:
            raise error
        return outcome

    def start(self, awaitable: Awaitable[Any], on_done: OnDone) -> None:  # Any: what `execute` returned
        """Run `awaitable` on the loop's thread, which calls `on_done` with its outcome or its exception."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
            self._thread.start()

        async def run() -> None:
            on_done(*await _settled(awaitable))

        asyncio.run_coroutine_threadsafe(run(), self._loop)

    def close(self) -> None:
        """Stop the loop; coroutines that still run are left where they are."""
        self._is_closing = True
        if self._thread is None:
            self._loop.close()
        else:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_closing:
            try:
                self._loop.run_forever()
            except BaseException:  # SystemExit in a task the model has made: its own affair, not the loop's
                continue
        self._loop.close()


async def _settled(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    # Nothing passes through the loop itself: SystemExit would stop it.
    try:
        return await awaitable, None
    except BaseException as exc:
        return None, exc
