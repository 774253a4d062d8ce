"""Limit on the number of model versions that load at once: `--model-load-thread-count`.

A model that waits while it is loaded, because its `initialize` loads another model, gives its place away for
that time: otherwise as many waiting models as there are places would block each other. So does one that waits
for the loading hook of another model of its backend, which may take long, or never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

VersionName = tuple[str, int]
"""A model's name and its version."""


class _Place:
    """One load that has been let in."""

    def __init__(self) -> None:
        self.is_held = True
        self.is_over = False
        self.waiting_count = 0


class LoadGate:
    """Limits how many loads run at once; owned by the loop.

    Args:
        place_count: the limit.
    """

    def __init__(self, place_count: int) -> None:
        self._free = asyncio.Semaphore(place_count)
        self._places: dict[VersionName, list[_Place]] = {}

    @asynccontextmanager
    async def enter(self, version: VersionName) -> AsyncIterator[None]:
        """Load while inside; waits for a place, first come first served."""
        await self._free.acquire()
        place = _Place()
        places = self._places.setdefault(version, [])
        places.append(place)
        try:
            yield
        finally:
            place.is_over = True
            places.remove(place)
            if not places:
                del self._places[version]
            if place.is_held:
                self._free.release()

    @asynccontextmanager
    async def step_aside(self, version: VersionName) -> AsyncIterator[None]:
        """Give the place of a load away while inside, and wait for one again at the end.

        Nothing happens for a version that is not being loaded. One that is given up takes no place again.
        """
        place = next(iter(self._places.get(version, ())), None)
        if place is None:
            yield
            return
        place.waiting_count += 1
        if place.is_held:
            place.is_held = False
            self._free.release()
        try:
            yield
        except asyncio.CancelledError:
            place.waiting_count -= 1
            raise
        except BaseException:
            await self._come_back(place)
            raise
        else:
            await self._come_back(place)

    async def _come_back(self, place: _Place) -> None:
        place.waiting_count -= 1
        if not place.waiting_count and not place.is_over:
            await self._take_again(place)

    async def _take_again(self, place: _Place) -> None:
        await self._free.acquire()
        if place.is_over or place.is_held:
            self._free.release()
        else:
            place.is_held = True
