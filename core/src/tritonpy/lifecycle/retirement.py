"""Versions that take no new requests: each is closed when the last one it has accepted is answered."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Sequence

from tritonpy.errors import TritonError, Unavailable
from tritonpy.model.malloc_trim import give_memory_back
from tritonpy.model.model import LoadedModel

_log = logging.getLogger("tritonpy.repository")

_FINISH_S = 15.0


class Retirement:
    """Closes versions in the background; on the loop only."""

    def __init__(self) -> None:
        self._tasks: dict[LoadedModel, asyncio.Task[None]] = {}
        self._followers: set[asyncio.Task[None]] = set()

    @property
    def models(self) -> list[LoadedModel]:
        """The versions that are still about."""
        return list(self._tasks)

    def add(self, model: LoadedModel, on_closed: Callable[[], None]) -> None:
        """Close a version when it has answered what it accepted, then call `on_closed`."""
        task = asyncio.get_running_loop().create_task(self._retire(model, on_closed))
        self._tasks[model] = task
        task.add_done_callback(lambda _: self._closed(model))

    def follow(self, work: Coroutine[object, object, None]) -> None:
        """Do in the background what belongs to the end of a model and is bounded in time."""
        task = asyncio.get_running_loop().create_task(work)
        self._followers.add(task)
        task.add_done_callback(self._followed)

    async def finish(self, error: TritonError) -> None:
        """Close now what is still about; what it has not answered is answered with `error`."""
        tasks = dict(self._tasks)
        await close_all(tuple(tasks), error)
        # Each has nothing left to wait for; a backend that never answers must not hold the server up.
        _, late = await asyncio.wait(tasks.values(), timeout=_FINISH_S) if tasks else ((), ())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        while self._followers:
            await asyncio.wait(self._followers)

    def _followed(self, task: asyncio.Task[None]) -> None:
        self._followers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the end of a model failed", exc_info=error)

    def _closed(self, model: LoadedModel) -> None:
        del self._tasks[model]
        if not self._tasks:
            # A model's parts refer to each other, and what it holds (weights, shared memory) may be large: it
            # would stay until the collector comes by, which an idle server may not see for hours. What was
            # there when the server started is frozen, so this takes a moment only.
            asyncio.get_running_loop().call_soon(_tidy_up)

    async def _retire(self, model: LoadedModel, on_closed: Callable[[], None]) -> None:
        try:
            await model.unused()  # those who still send it requests
            await model.drain()
            await _close(model, Unavailable(f"model '{model.name}' version {model.version} was unloaded"))
            _log.info("successfully unloaded '%s' version %d", model.name, model.version)
        finally:
            on_closed()


def _tidy_up() -> None:
    gc.collect()
    asyncio.get_running_loop().run_in_executor(None, give_memory_back)


async def close_all(models: Sequence[LoadedModel], error: TritonError) -> None:
    """Close versions at once; what they have not answered is answered with `error`."""
    await asyncio.gather(*(_close(model, error) for model in models))


async def _close(model: LoadedModel, error: TritonError) -> None:
    try:
        await model.close(error)
    except Exception:
        _log.exception("closing '%s' version %d failed", model.name, model.version)
