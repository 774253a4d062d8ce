"""Who has told a model to send no more for now, and when nobody may."""

from __future__ import annotations

from typing import Protocol


class Pausing(Protocol):
    """A step of an ensemble whose model may be told to wait."""

    def pace(self) -> None:
        """Have it wait or go on, whichever it is to do now."""


class Pauses:
    """The steps for which one decoupled model waits now; on the loop only.

    A step holds its model up until what that has sent is worked on. A model that is called meanwhile may be
    what this work waits for: whoever calls could be at that work itself, or occupy an instance that is needed
    for it. So nobody holds a model up while another model waits for its answer.
    """

    __slots__ = ("_caller_count", "_steps")

    def __init__(self) -> None:
        self._caller_count = 0
        self._steps: set[Pausing] = set()

    @property
    def are_allowed(self) -> bool:
        """Whether the model may be told to wait."""
        return not self._caller_count

    def add(self, step: Pausing) -> None:
        """A step has told it to."""
        self._steps.add(step)

    def remove(self, step: Pausing) -> None:
        """It does no more."""
        self._steps.discard(step)

    def caller_came(self) -> None:
        """Another model waits for an answer: all that wait go on."""
        self._caller_count += 1
        for step in tuple(self._steps):
            step.pace()

    def caller_left(self) -> None:
        """It has got one, or waits no more."""
        self._caller_count -= 1
