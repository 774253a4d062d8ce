"""Finds clients that keep a connection waiting: headers without end, bodies and answers that stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

SWEEP_S = 15.0
STALLED_SWEEPS = 4


class Swept(Protocol):
    """A connection as the sweeper sees it."""

    def progress(self) -> object:
        """What changes as the client does what is waited for; None when nothing is waited for."""

    def time_out(self) -> None:
        """End the connection."""


class Sweeper:
    """Looks at all connections now and then; on the loop only.

    Nothing is paid for each connection but while its client is waited for.

    Args:
        connections: those that are open.
    """

    def __init__(self, connections: Iterable[Swept]) -> None:
        self._connections = connections
        self._waits: dict[Swept, tuple[object, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look every `SWEEP_S`."""
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._look_again)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._waits.clear()

    def sweep(self) -> None:
        """End connections on which nothing has changed for `STALLED_SWEEPS` sweeps."""
        waits: dict[Swept, tuple[object, int]] = {}
        for connection in list(self._connections):
            progress = connection.progress()
            if progress is None:
                continue
            before, count = self._waits.get(connection, (None, 0))
            count = count + 1 if progress == before else 0
            if count >= STALLED_SWEEPS:
                connection.time_out()
            else:
                waits[connection] = progress, count
        self._waits = waits

    def _look_again(self) -> None:
        self.sweep()
        self.start()
