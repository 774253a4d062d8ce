"""Deadlines of calls, looked at now and then: most calls are over long before theirs."""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol

_STEPS = ((1.0, 0.01), (10.0, 0.1), (600.0, 1.0))
"""Up to so many seconds a deadline is kept to so many; late is soon enough for calls that wait long."""
_LONGEST_STEP_S = 60.0
_LONGEST_S = 86_400.0
"""What is further away is left to the client, which cancels its call then."""


class Expiring(Protocol):
    """A call that has a deadline."""

    def on_deadline(self) -> None:
        """It has passed."""


class Deadlines:
    """The deadlines of all calls of a port; on the loop only.

    Calls whose deadlines are close to each other share a timer, and a call that ends in time costs a timer
    nothing. What is kept is bounded by the times that are told apart, not by the number of calls.
    """

    def __init__(self) -> None:
        self._calls: dict[float, dict[Expiring, None]] = {}  # by the time when they are looked at
        self._times: list[float] = []  # a heap of the same times; one may have lost its calls
        self._timer: asyncio.Handle | None = None
        self._timer_time = 0.0  # uvloop's handles of what is due at once do not know it

    def add(self, call: Expiring, timeout_s: float) -> float:
        """Have a call told when its time is over; returns what `discard` takes, 0 for none."""
        if timeout_s > _LONGEST_S:
            return 0.0
        loop = asyncio.get_running_loop()
        step = next((step for most, step in _STEPS if timeout_s <= most), _LONGEST_STEP_S)
        time = (int((loop.time() + timeout_s) / step) + 1) * step
        calls = self._calls.get(time)
        if calls is None:
            calls = self._calls[time] = {}
            heapq.heappush(self._times, time)
            if self._timer is None or time < self._timer_time:
                self._set(loop)
        calls[call] = None
        return time

    def discard(self, call: Expiring, time: float) -> None:
        """Tell a call nothing any more."""
        calls = self._calls.get(time)
        if calls is not None:
            calls.pop(call, None)

    def stop(self) -> None:
        """Tell nobody anything any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._calls.clear()
        self._times.clear()

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._times:
            self._timer_time = self._times[0]
            self._timer = loop.call_at(self._timer_time, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        while self._times and self._times[0] <= now:
            for call in self._calls.pop(heapq.heappop(self._times)):
                call.on_deadline()
        self._set(loop)
