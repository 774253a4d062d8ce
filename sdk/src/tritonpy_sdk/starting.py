"""Entering what starts and stops on a thread, from a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self


async def started(start: Callable[[], object], stop: Callable[[], object]) -> None:
    """Start without holding up the loop; a start whose task is cancelled is followed by a stop.

    Args:
        start: returns when it runs.
        stop: does nothing where nothing runs.

    Raises:
        Exception: what `start` raises.
    """
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait((starting,))  # a thread cannot be cancelled
        if not starting.cancelled() and starting.exception() is None:
            await asyncio.to_thread(stop)
        raise


class Startable:
    """What is started and stopped, and can be entered with `with` and `async with`."""

    def start(self) -> Self:
        """Returns when it runs."""
        raise NotImplementedError

    def stop(self) -> None:
        """End; does nothing where nothing runs."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await started(self.start, self.stop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
