"""The event loop that a server runs on, and a thread for it inside other programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Startable(Protocol):
    """A part that lives on a loop from its start to its stop."""

    async def start(self) -> None:
        """Return once it runs."""

    async def stop(self) -> None:
        """Return once nothing of it runs; called after a start that failed, too."""


T = TypeVar("T", bound=Startable)


class LoopThread(Generic[T]):
    """A thread with a loop, on which one thing runs; it is used once.

    Args:
        name: of the thread.
        make: builds what runs; called on the loop.
    """

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._running: T | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Return once it runs; raises what making or starting it raised, with everything taken down."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Stop it and return once the thread has ended; nothing happens where nothing runs."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, once started."""
        assert self._loop is not None  # started
        return self._loop

    @property
    def running(self) -> T:
        """The part that runs; touch it on the loop only."""
        assert self._running is not None  # started
        return self._running

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self._running = self._make()
            await self._running.start()
        except BaseException as exc:
            self._error = exc
        self._started.set()
        if self._error is None:
            await self._stop.wait()
        if self._running is not None:
            await self._running.stop()
