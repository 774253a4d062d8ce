"""Entering what starts and stops on a thread, from a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
