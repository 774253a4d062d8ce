"""The end of all models: drained, then unloaded, with a line every second that says what is still there.

The lines are Triton's: people and scripts that watch a pod go down look for them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tritonpy.errors import Unavailable
from tritonpy.lifecycle.manager import ModelManager

_log = logging.getLogger("tritonpy.repository")


async def end_sequences(repository: ModelManager, timeout_s: float) -> float:
    """Let running sequences go on until they end, while no others begin; the time that is left.

    Clients have to reach them meanwhile, so this comes before the ports are closed.

    Args:
        repository: with the models.
        timeout_s: how long it may take.
    """
    error = Unavailable(
        "Server is stopping, scheduler for model has stopped accepting new inference requests"
    )
    with_sequences = [
        (model, model.sequences) for model in repository.live_models if model.sequences is not None
    ]
    ends = [asyncio.ensure_future(sequences.end_sequences(error)) for _, sequences in with_sequences]
    if not ends:
        return timeout_s
    countdown = _Countdown(timeout_s)

    def describe_open() -> list[str]:
        counts = [(model, sequences.open_sequence_count) for model, sequences in with_sequences]
        still_open = [(model, count) for model, count in counts if count]
        return [f"Found {len(still_open)} model versions that have in-flight inferences: open sequences"] + [
            f"Model '{model.name}' (version {model.version}) has {count} in-flight inferences: open sequences"
            for model, count in still_open
        ]

    await asyncio.sleep(0)  # for those that have none
    if not all(end.done() for end in ends):
        async with countdown.lines(describe_open):
            await asyncio.wait(ends, timeout=timeout_s)
    for end in ends:
        end.cancel()
    return countdown.left_s


async def drain_and_unload(repository: ModelManager, timeout_s: float) -> None:
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

    @property
    def left_s(self) -> float:
        """The time that is left, in seconds."""
        return max(0.0, self._end_s - asyncio.get_running_loop().time())

    @asynccontextmanager
    async def lines(self, describe: Callable[[], list[str]]) -> AsyncIterator[None]:
        """Log the text of `describe`: at once, every second, and at the end if it has changed."""
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
        self._last = lines
        _log.info("Timeout %d: %s", math.ceil(self.left_s), lines[0])
        for line in lines[1:]:
            _log.info("%s", line)
