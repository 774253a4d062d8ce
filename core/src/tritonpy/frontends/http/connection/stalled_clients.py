"""Finds clients that keep a connection waiting: endless headers, standing bodies and answers, silence."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from tritonpy.frontends.http.connection.eviction import Quietable, QuietOrder

SWEEP_S = 15.0
STALLED_SWEEPS = 4


class Swept(Quietable, Protocol):
    """A connection as the sweeper sees it."""

    def progress(self) -> object:
        """A value that changes as the client does what is waited for; None when nothing is waited for."""

    def idle_mark(self) -> object:
        """A value that changes with each request; None while one is sent or answered."""

    def time_out(self) -> None:
        """End the connection."""


_Connection = TypeVar("_Connection", bound=Swept)


class Sweeper(Generic[_Connection]):
    """Looks at all connections now and then; on the loop only.

    Nothing is paid for each connection but while its client is waited for.

    Args:
        connections: those that are open.
        quiet_order: is told on which of them something has changed.
        idle_timeout_s: how long a client may ask nothing; 0 for no limit.
    """

    def __init__(
        self,
        connections: Iterable[_Connection],
        quiet_order: QuietOrder[_Connection],
        idle_timeout_s: float = 0,
    ) -> None:
        self._connections = connections
        self._quiet_order = quiet_order
        self._idle_sweeps = max(1, math.ceil(idle_timeout_s / SWEEP_S)) if idle_timeout_s else sys.maxsize
        self._waits: dict[_Connection, tuple[object, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look every `SWEEP_S`."""
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._look_again)

    def stop(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
        self._waits.clear()

    def sweep(self) -> None:
        """End connections on which nothing has changed for `STALLED_SWEEPS` sweeps, and idle ones later."""
        waits: dict[_Connection, tuple[object, int]] = {}
        for connection in list(self._connections):
            progress, most = connection.progress(), STALLED_SWEEPS
            if progress is None:
                progress, most = connection.idle_mark(), self._idle_sweeps
                if progress is None:
                    continue
            before, count = self._waits.get(connection, (None, 0))
            count = count + 1 if progress == before else 0
            if not count:
                self._quiet_order.renew(connection)
            if count >= most:
                connection.time_out()
            else:
                waits[connection] = progress, count
        self._waits = waits

    def _look_again(self) -> None:
        self.sweep()
        self.start()
