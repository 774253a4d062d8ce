"""Notices requests that a model keeps to itself for long after `execute` returned.

A model may answer later, through a response sender, and some need their time. But a sender that is held
and never used leaves its client waiting, and nothing else would show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tritonpy.request import InferRequest

Report = Callable[[InferRequest, float], None]
"""Takes a request and the seconds since its `execute` returned."""


class UnansweredWatch:
    """Watches the open requests of one worker; on the loop only.

    One timer for all: requests come in the order of their times, so the first is the next to be due.

    Args:
        after_s: how long a request may be open; 0 for no limit.
        report: called once for a request that is open longer.
    """

    def __init__(self, after_s: float, report: Report) -> None:
        self._after_s = after_s
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[InferRequest, float]] = {}  # by slot, the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def add(self, slot: int, request: InferRequest) -> None:
        """`execute` has returned without an answer to this request."""
        if self._after_s:
            self._open[slot] = request, self._loop.time()
            if self._timer is None:
                self._timer = self._loop.call_later(self._after_s, self._check)

    def remove(self, slot: int) -> None:
        """The request in `slot` has its final response, if one was open at all."""
        self._open.pop(slot, None)

    def clear(self) -> None:
        """No request is open any more."""
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._open:
            slot, (request, since) = next(iter(self._open.items()))
            if now - since < self._after_s:
                self._timer = self._loop.call_later(since + self._after_s - now, self._check)
                return
            del self._open[slot]
            self._report(request, now - since)
