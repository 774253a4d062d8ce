"""Readiness of the router, told to those who watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tritonpy.protos import HealthCheckResponse

from tritonpy_router.view import View


class Readiness:
    """Whether any replica takes requests; on the loop only.

    Args:
        view: knows the replicas.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._is_over = False
        self._changed = asyncio.Event()

    @property
    def status(self) -> int:
        """A value of `HealthCheckResponse.ServingStatus`."""
        is_ready = not self._view.why_not_ready()
        return HealthCheckResponse.SERVING if is_ready else HealthCheckResponse.NOT_SERVING

    def may_have_changed(self) -> None:
        """A replica has changed."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def end(self) -> None:
        """The router is going away."""
        self._is_over = self._view.is_stopping = True
        self.may_have_changed()

    async def change(self) -> None:
        """Return when a replica has changed."""
        await self._changed.wait()

    async def changes(self) -> AsyncIterator[int]:
        """The status now, and again whenever it has changed, until the end."""
        told: int | None = None
        while True:
            changed = self._changed
            if (status := self.status) != told:
                told = status
                yield status
            if self._is_over:
                return
            await changed.wait()
