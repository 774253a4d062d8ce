"""Repository agents as the loop sees them: they may block for as long as they like, and it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tritonpy.lifecycle.agents.chain import AgentChain
from tritonpy.own_thread import on_own_thread

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
        self._under_way = ""
        self._is_left_alone = False

    async def load(self) -> None:
        """See `AgentChain.load`; cancelled, no more agents are called, and `failed` must follow."""
        try:
            await self._take(self.chain.load, "LOAD", is_needed=True)
        except asyncio.CancelledError:
            self.chain.give_up()
            raise

    async def loaded(self) -> None:
        """LOAD_COMPLETE: the model serves."""
        await self._take(self.chain.loaded, "LOAD_COMPLETE")

    async def failed(self) -> None:
        """LOAD_FAIL: the model could not be loaded."""
        await self._take(self.chain.failed, "LOAD_FAIL")

    async def unload(self) -> None:
        """UNLOAD: the model takes no new requests."""
        await self._take(self.chain.unload, "UNLOAD")

    async def unloaded(self) -> None:
        """UNLOAD_COMPLETE: the model is gone."""
        await self._take(self.chain.unloaded, "UNLOAD_COMPLETE")

    async def _take(self, step: Callable[[], None], action: str, *, is_needed: bool = False) -> None:
        """Take a step when the one before it is over; a caller who goes away does not end it."""
        previous = self._last
        self._last = current = asyncio.create_task(self._after(previous, step, action))
        current.add_done_callback(_look_at)
        if self._is_left_alone and previous is not None and not previous.done():
            return
        done, _ = await asyncio.wait((current,), timeout=None if is_needed else self._patience_s)
        if done:
            current.result()
            return
        self._is_left_alone = True
        _log.error(
            "repository agents of model '%s' are still busy with %s after %g s; they are left alone with it",
            self.chain.name,
            self._under_way,
            self._patience_s,
        )

    async def _after(
        self, previous: asyncio.Task[None] | None, step: Callable[[], None], action: str
    ) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        self._under_way = action
        await on_own_thread(step, f"agents of {self.chain.name}")


def _look_at(task: asyncio.Task[None]) -> None:
    """Whoever waited may have gone: then what a step raised is of no use to anybody."""
    if not task.cancelled():
        task.exception()
