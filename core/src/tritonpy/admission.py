"""Admission of requests by the bytes that all frontends hold together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tritonpy.errors import Unavailable


class Waiter(Protocol):
    """A connection that reads no more of a request until there is room for it."""

    @property
    def held(self) -> int:
        """The bytes that it holds itself meanwhile; they are counted."""

    def on_room(self) -> None:
        """There is room again."""

    def on_no_room(self) -> None:
        """There was none for as long as one may wait."""


class Admission:
    """Counts the bytes of requests that are held, so that memory stays bounded; on the loop only.

    What has arrived counts, not what was announced. A frontend that can stop reading waits for room; one that
    cannot refuses. A request that comes while nothing else is held is admitted at any size,
    or it never would be.

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
        self._waiting: dict[Waiter, asyncio.TimerHandle] = {}

    def admits(self, byte_size: int) -> bool:
        """True if `byte_size` more bytes may be held now."""
        return self.held + byte_size <= self._most or not self.held

    def hold(self, byte_size: int) -> bool:
        """Count bytes that have arrived; False if more than the limit is held now."""
        self.held += byte_size
        return self.held <= self._most

    def release(self, byte_size: int) -> None:
        """Count bytes no more, and wake those that wait for the room."""
        self.held -= byte_size
        if self._waiting:
            self._wake()

    @contextmanager
    def holding(self, byte_size: int) -> Iterator[None]:
        """Count bytes that have arrived while a block runs.

        Raises:
            Unavailable: more than the limit would be held; the block does not run.
        """
        has_room = self.hold(byte_size)
        try:
            if not has_room:
                raise self.refusal(byte_size)
            yield
        finally:
            self.release(byte_size)

    def wait(self, waiter: Waiter) -> None:
        """Tell a waiter when there is room, or that there was none for long; first come, first served."""
        loop = asyncio.get_running_loop()
        self._waiting[waiter] = loop.call_later(self.patience_s, self._give_up, waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        timer = self._waiting.pop(waiter, None)
        if timer is not None:
            timer.cancel()

    def refusal(self, byte_size: int) -> Unavailable:
        """The error for the client of a request that is not admitted."""
        return Unavailable(
            f"request of {byte_size} bytes refused: {self.held} bytes of requests are held and "
            f"--max-inflight-bytes is {self.limit}"
        )

    def _wake(self) -> None:
        while self._waiting:
            first = next(iter(self._waiting))
            if self.held > self._most and self.held > first.held:
                break
            self.leave(first)
            first.on_room()

    def _give_up(self, waiter: Waiter) -> None:
        del self._waiting[waiter]
        waiter.on_no_room()
