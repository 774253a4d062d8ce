"""Repository agents as the loop sees them: they may block for as long as they like, and it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tritonpy.repository.agent_chain import AgentChain
from tritonpy.repository.own_thread import on_own_thread

_log = logging.getLogger("tritonpy.repository")

_PATIENCE_S = 15.0
"""For how long a step is waited for that nothing depends on: the next one takes its turn when it is over."""


class AgentSteps:
    """The steps of a chain, each on a thread of its own and one after the other; on the loop only.

    Args:
        chain: what to do.
        patience_s: how long to wait for other steps than `load`.
    """

    def __init__(self, chain: AgentChain, patience_s: float = _PATIENCE_S) -> None:
        self.chain = chain
        self._patience_s = patience_s
        self._last: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """See `AgentChain.load`; cancelled, no more agents are called, and `failed` must follow."""
        try:
            await self._take(self.chain.load, "LOAD", None)
        except asyncio.CancelledError:
            self.chain.give_up()
            raise

    async def loaded(self) -> None:
        """See `AgentChain.loaded`."""
        await self._take(self.chain.loaded, "LOAD_COMPLETE", self._patience_s)

    async def failed(self) -> None:
        """See `AgentChain.failed`."""
        await self._take(self.chain.failed, "LOAD_FAIL", self._patience_s)

    async def unload(self) -> None:
        """See `AgentChain.unload`."""
        await self._take(self.chain.unload, "UNLOAD", self._patience_s)

    async def unloaded(self) -> None:
        """See `AgentChain.unloaded`."""
        await self._take(self.chain.unloaded, "UNLOAD_COMPLETE", self._patience_s)

    async def _take(self, step: Callable[[], None], action: str, patience_s: float | None) -> None:
        """Take a step when the one before it is over; a caller who goes away does not end it."""
        self._last = current = asyncio.create_task(self._after(self._last, step))
        current.add_done_callback(_look_at)
        done, _ = await asyncio.wait((current,), timeout=patience_s)
        if done:
            current.result()
            return
        _log.error(
            "repository agents of model '%s' are still busy with %s after %g s; nobody waits for them",
            self.chain.name,
            action,
            self._patience_s,
        )

    async def _after(self, previous: asyncio.Task[None] | None, step: Callable[[], None]) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        await on_own_thread(step, f"agents of {self.chain.name}")


def _look_at(task: asyncio.Task[None]) -> None:
    """Whoever waited may have gone: then what a step raised is of no use to anybody."""
    if not task.cancelled():
        task.exception()
