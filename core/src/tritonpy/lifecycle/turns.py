"""What is done to models: one thing after the other for each of them, and to its end once it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tritonpy.errors import Unavailable

NOT_READY = "Server not ready"
"""What is told to whoever wants something before the server has started, or while it stops."""

Result = TypeVar("Result")


class Turns:
    """A lock for each name, and the tasks that are under way; owned by the loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()  # Any: what each gives is for whoever waits for it

    def lock(self, name: str) -> asyncio.Lock:
        """To be held by whoever changes what is loaded under a name; first come, first served."""
        return self._locks.setdefault(name, asyncio.Lock())

    def is_taken(self, name: str) -> bool:
        """Whether somebody holds the lock of a name, or is about to: it is kept for as long as that."""
        return name in self._locks

    def start(self, work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        """Begin something that nobody has to wait for; its errors are logged where they happen."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def see_through(self, work: Coroutine[object, object, Result]) -> Result:
        """Do something to its end, also when whoever waits for it is cancelled.

        Raises:
            Unavailable: it was given up, because the server stops.
        """
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unavailable(NOT_READY) from None
            raise

    async def stop(self) -> None:
        """Give up what is under way; nothing new may be begun."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:  # Any: see `_tasks`
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # logged where it happened; perhaps nobody is left to be told
