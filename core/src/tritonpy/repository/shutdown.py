"""The end of all models: drained, then unloaded, with a line every second that says what is still there.

The lines are Triton's: people and scripts that watch a pod go down look for them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tritonpy.repository.manager import RepositoryManager

_log = logging.getLogger("tritonpy.repository")


async def drain_and_unload(repository: RepositoryManager, timeout_s: float) -> None:
    """Wait until every accepted request is answered, then take all models down.

    Args:
        repository: there must be no new requests, and no loads.
        timeout_s: after this, what is not answered is answered UNAVAILABLE.
    """
    countdown = _Countdown(timeout_s)
    _log.info("Waiting for in-flight requests to complete.")

    def describe_busy() -> list[str]:
        busy = [model for model in repository.live_models if model.inflight_count]
        return [f"Found {len(busy)} model versions that have in-flight inferences"] + [
            f"Model '{model.name}' (version {model.version}) has {model.inflight_count} in-flight inferences"
            for model in busy
        ]

    try:
        async with countdown.lines(describe_busy), asyncio.timeout(timeout_s):
            await asyncio.gather(*(model.drain() for model in repository.live_models))
    except TimeoutError:
        _log.warning("Exit timeout expired with requests in flight; they are answered UNAVAILABLE")
    else:
        _log.info("All models are stopped, unloading models")

    def describe_live() -> list[str]:
        return [f"Found {repository.live_count} live models and 0 in-flight non-inference requests"]

    async with countdown.lines(describe_live):
        await repository.unload_all()


class _Countdown:
    """Says every second how many are left, and what is waited for.

    Args:
        timeout_s: where it begins; at 0 it stays.
    """

    def __init__(self, timeout_s: float) -> None:
        self._end_s = asyncio.get_running_loop().time() + timeout_s
        self._last: list[str] = []

    @asynccontextmanager
    async def lines(self, describe: Callable[[], list[str]]) -> AsyncIterator[None]:
        """Log what `describe` says: at once, every second, and at the end if it is news."""
        self._say(describe())
        repeating = asyncio.create_task(self._repeat(describe))
        try:
            yield
        finally:
            repeating.cancel()
            await asyncio.wait((repeating,))
            if (lines := describe()) != self._last:
                self._say(lines)

    async def _repeat(self, describe: Callable[[], list[str]]) -> None:
        while True:
            await asyncio.sleep(1)
            self._say(describe())

    def _say(self, lines: list[str]) -> None:
        left_s = max(0, math.ceil(self._end_s - asyncio.get_running_loop().time()))
        self._last = lines
        _log.info("Timeout %d: %s", left_s, lines[0])
        for line in lines[1:]:
            _log.info("%s", line)
