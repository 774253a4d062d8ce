"""The actor of the controller: thin, around what `controller` does without Ray."""

from __future__ import annotations

import asyncio

from tritonpy.errors import TritonError
from tritonpy_router.engines import FleetChange, Row, read_plan

from tritonpy_ray.controller import Controller
from tritonpy_ray.launcher import RayLauncher


class ControllerActor:
    """The controller of a fleet; its commands return the text of an error, or "".

    Errors are texts since what Ray makes of an exception is a trace.
    """

    def __init__(self, fleet: str, plan: str) -> None:
        self._controller = Controller(RayLauncher(fleet), read_plan(plan))
        self._task = asyncio.get_running_loop().create_task(self._controller.run())

    async def members(self, revision: int, wait_s: float) -> tuple[int, tuple[str, ...]]:
        """See `Controller`."""
        return await self._controller.members(revision, wait_s)

    async def status(self) -> list[Row]:
        """See `Controller`."""
        return self._controller.status()

    async def settle(self) -> str:
        """See `Controller`."""
        try:
            await self._controller.settle()
        except TritonError as exc:
            return exc.message
        return ""

    async def scale(self, count: int) -> str:
        """See `Controller`."""
        try:
            await self._controller.scale(count)
        except TritonError as exc:
            return exc.message
        return ""

    async def update(self, change: FleetChange) -> str:
        """See `Controller`."""
        try:
            await self._controller.update(change)
        except TritonError as exc:
            return exc.message
        return ""

    async def down(self) -> str:
        """See `Controller`."""
        await self._controller.down()
        return ""
