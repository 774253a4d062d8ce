"""Keep the loop turning, instead of sleeping, while the answer of a quick model is due (ADR 0007)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tritonpy.workers.pace import LINGER_NS


class Linger:
    """Stays awake for `LINGER_NS` at most; on the loop only.

    Args:
        loop: kept turning.
        is_awaited: whether an answer is still to come.
    """

    __slots__ = ("_is_awaited", "_loop", "_until_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop, is_awaited: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_awaited = is_awaited
        self._until_ns = 0

    def begin(self) -> None:
        """Something was sent, and its answer is due within microseconds."""
        self._until_ns = time.monotonic_ns() + LINGER_NS
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._is_awaited() and time.monotonic_ns() < self._until_ns:
            self._loop.call_soon(self._turn)
