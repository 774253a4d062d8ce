"""The turns of loading hooks that must not run at the same time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count

Aside = Callable[[], AbstractAsyncContextManager[object]]
"""Makes a context in which a load waits; it gives away meanwhile what other loads could use."""


class LoadTurn:
    """Lets one loading hook of a backend run at a time; owned by the loop.

    Of the loads that wait the one that began first is next. So each is done early, and not all of them last.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def number(self) -> int:
        """A number for a load that begins."""
        return next(self._numbers)

    @asynccontextmanager
    async def take(self, number: int, aside: Aside) -> AsyncIterator[None]:
        """Have the turn while inside.

        Args:
            number: of the load.
            aside: where it waits, if it has to.
        """
        if self._is_taken:
            await self._wait(number, aside)
        self._is_taken = True
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, number: int, aside: Aside) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._numbers), turn))
        try:
            async with aside():
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it has come meanwhile
                self._hand_on()
            turn.cancel()
            raise

    def _hand_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
