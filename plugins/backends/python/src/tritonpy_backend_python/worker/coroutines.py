"""Running a model's `async def execute`."""

from __future__ import annotations

import asyncio
import threading
from _queue import SimpleQueue  # the C part alone: a condition would cost every execution its locks
from collections.abc import Awaitable, Callable
from typing import Any

OnDone = Callable[[Any, "BaseException | None"], None]  # Any: what `execute` returned

_END_S = 5.0


class Coroutines:
    """The event loop of a model, made when `execute` first returns an awaitable.

    It runs on a thread of its own until the model has been finalized, also while nothing executes: tasks that
    `execute` leaves behind go on, whether or not the model is decoupled.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself does not keep them alive
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self._thread.start()

    def wait(self, awaitable: Awaitable[Any]) -> Any:  # Any: what `execute` returned
        """Run `awaitable` to its end and return its outcome; what it raises is raised."""
        done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.start(awaitable, lambda outcome, error: done.put((outcome, error)))
        outcome, error = done.get()
        if error is not None:
            raise error
        return outcome

    def start(self, awaitable: Awaitable[Any], on_done: OnDone) -> None:  # Any: what `execute` returned
        """Run `awaitable` on the loop's thread, which calls `on_done` with its outcome or its exception."""

        async def run() -> None:
            on_done(*await _settled(awaitable))

        def begin() -> None:
            task = self._loop.create_task(run())
            self._tasks.add(task)
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():  # before its first step: afterwards `_settled` has the exception
                if asyncio.iscoroutine(awaitable):
                    awaitable.close()
                on_done(None, asyncio.CancelledError())

        self._loop.call_soon_threadsafe(begin)

    def close(self) -> None:
        """Cancel what still runs, and stop the loop; what does not end in a few seconds stays where it is."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(2 * _END_S)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S)
        self._is_closing = True
        self._loop.stop()

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
