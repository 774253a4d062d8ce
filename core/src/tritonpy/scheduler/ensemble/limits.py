"""How many requests each step of an ensemble may have open; `max_inflight_requests`."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class WaitingStep(Protocol):
    """A step of one request that wants to begin."""

    @property
    def is_wanted(self) -> bool:
        """Whether it still is to begin."""

    def admitted(self) -> None:
        """It may begin now."""


class StepLimits:
    """Counts the open requests of each step, over all requests of the ensemble; on the loop only.

    What comes when a step has all it may have waits, first come first served, and whoever sends it is told to
    wait as well. So nothing is dropped, and only as much waits as was already under way.

    Args:
        most: how many requests of a step may be open.
        step_count: of the ensemble.
    """

    def __init__(self, most: int, step_count: int) -> None:
        self._most = most
        self._open = [0] * step_count
        self._waiting: list[deque[WaitingStep]] = [deque() for _ in range(step_count)]
        self._left: deque[int] = deque()
        self._is_admitting = False

    def enter(self, number: int, step: WaitingStep) -> bool:
        """Whether a step may begin at once; if not, it is called when it may."""
        if self._open[number] < self._most:
            self._open[number] += 1
            return True
        self._waiting[number].append(step)
        return False

    def leave(self, number: int) -> None:
        """A request of a step has its final response: the next one may begin."""
        self._left.append(number)
        if self._is_admitting:  # a step that is refused at once comes back here; thousands may be
            return
        self._is_admitting = True
        try:
            while self._left:
                self._admit_next(self._left.popleft())
        finally:
            self._is_admitting = False

    def _admit_next(self, number: int) -> None:
        waiting = self._waiting[number]
        while waiting:
            step = waiting.popleft()
            if step.is_wanted:
                step.admitted()
                return
        self._open[number] -= 1
