"""Finds clients that keep a call waiting: messages that do not arrive, and answers that are not taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

SWEEP_S = 15.0
STALLED_SWEEPS = 4


class Waiting(Protocol):
    """A call or a connection that may wait for its client."""

    def progress(self) -> object:
        """A value that changes as the client does what is waited for; None when nothing is."""

    def time_out(self) -> None:
        """End it: its client has done nothing for long."""


class Sweeper:
    """Looks at all calls and connections now and then; on the loop only.

    Nothing is paid for each but while its client is waited for.

    Args:
        waiting: gives all of them.
    """

    def __init__(self, waiting: Iterable[Waiting]) -> None:
        self._waiting = waiting
        self._marks: dict[Waiting, tuple[object, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look every `SWEEP_S`."""
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._look_again)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._marks.clear()

    def sweep(self) -> None:
        """End those on which nothing has changed for `STALLED_SWEEPS` sweeps."""
        marks: dict[Waiting, tuple[object, int]] = {}
        for each in list(self._waiting):
            progress = each.progress()
            if progress is None:
                continue
            before, count = self._marks.get(each, (None, 0))
            count = count + 1 if progress == before else 0
            if count >= STALLED_SWEEPS:
                each.time_out()
            else:
                marks[each] = progress, count
        self._marks = marks

    def _look_again(self) -> None:
        self.sweep()
        self.start()
