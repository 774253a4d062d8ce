"""How many bytes of requests are held at once, over all frontends."""

from __future__ import annotations

import sys
from collections import deque
from typing import Protocol

from tritonpy.errors import Unavailable


class Waiter(Protocol):
    """Somebody who reads no more of a request until there is room for it."""

    @property
    def held(self) -> int:
        """The bytes that it holds itself meanwhile; they are counted."""

    def on_room(self) -> None:
        """There is room again."""


class Admission:
    """Counts the bytes of requests that are held, so that memory stays bounded; on the loop only.

    What has arrived counts, not what was announced. A frontend that can stop reading waits for room; one that
    cannot refuses. A request that comes while nothing else is held is let in whatever its size, or it never
    would be.

    Args:
        limit: bytes held at once; 0 means no limit.

    Attributes:
        held: bytes held now.
        patience_s: how long frontends wait for room before they refuse.
    """

    def __init__(self, limit: int, patience_s: float = 5.0) -> None:
        self.limit = limit
        self.patience_s = patience_s
        self.held = 0
        self._most = limit or sys.maxsize
        self._waiting: deque[Waiter] = deque()

    def admits(self, byte_size: int) -> bool:
        """Whether so many bytes more may be held now."""
        return self.held + byte_size <= self._most or not self.held

    def hold(self, byte_size: int) -> bool:
        """Count bytes that are there; False when it is more than the limit now."""
        self.held += byte_size
        return self.held <= self._most

    def release(self, byte_size: int) -> None:
        """Bytes that were counted are held no longer."""
        self.held -= byte_size
        if self._waiting:
            self._wake()

    def wait(self, waiter: Waiter) -> None:
        """Have `waiter.on_room` called when there is room; those who came first are called first."""
        self._waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Do not call `waiter.on_room` any more."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def refusal(self, byte_size: int) -> Unavailable:
        """What the client of a request is told that is not admitted."""
        return Unavailable(
            f"request of {byte_size} bytes refused: {self.held} bytes of requests are held and "
            f"--max-inflight-bytes is {self.limit}"
        )

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting and (self.held <= self._most or self.held <= waiting[0].held):
            waiting.popleft().on_room()
