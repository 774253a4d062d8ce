"""Loads and unloads under way: they end though their client has gone, or when the server stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from tritonpy.errors import TritonError, Unavailable
from tritonpy.lifecycle.registry import NOT_READY

_log = logging.getLogger("tritonpy.repository")

Result = TypeVar("Result")


class Background:
    """Tasks that are under way; owned by the loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()  # Any: each result is for those that wait for it

    def start(self, work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        """Begin work without waiting for it; `TritonError`s are logged where they happen, others here."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        """Do work to its end, also when the caller is cancelled.

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
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TritonError):  # those are logged where they happen
            _log.error("a load or unload failed unexpectedly", exc_info=error)
