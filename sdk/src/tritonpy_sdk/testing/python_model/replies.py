"""The answers to one request to a Python model under test, from any thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tritonpy_sdk.testing.python_model.arrays import WireAnswer


class Replies:
    """The answers to one request; filled by any thread, read by one.

    Args:
        label: names request and model, for errors.
        timeout_s: how long to wait for a response once `execute` has returned; before that there is no limit.

    Attributes:
        is_cancelled: no more of them are wanted.
        is_given_up: they are no longer waited for.
        on_cancel: called then.
    """

    def __init__(self, label: str, timeout_s: float) -> None:
        self.is_cancelled = False
        self.is_given_up = False
        self.on_cancel: Callable[[], None] | None = None
        self._label = label
        self._timeout_s = timeout_s
        self._news = threading.Condition()  # guards all below
        self._answers: deque[WireAnswer | BaseException | None] = deque()
        self._is_final = False
        self._ended_alone = False
        self._is_executed = False
        self._future: asyncio.Future[None] | None = None

    def put(self, answer: WireAnswer | BaseException | None, *, final: bool) -> None:
        """Add a response, or the exception that stands for it; None for nothing but the final flag."""
        with self._news:
            if answer is not None:
                self._answers.append(answer)
            elif final:
                self._ended_alone = True
            self._is_final = self._is_final or final
            self._tell()

    def executed(self) -> None:
        """`execute` has returned."""
        with self._news:
            self._is_executed = True
            self._tell()

    def cancel(self) -> None:
        """Tell the model that no more responses are wanted; those under way may still come."""
        self.is_cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()

    @property
    def ended_alone(self) -> bool:
        """True if the final flag came without a response."""
        return self._ended_alone

    def next(self) -> WireAnswer | BaseException | None:
        """Wait for the next response; None when there are no more.

        Raises:
            TimeoutError: `execute` has returned, and no response came in time.
        """
        with self._news:
            deadline = None
            while not (self._answers or self._is_final):
                if self._is_executed and deadline is None:
                    deadline = time.monotonic() + self._timeout_s
                if not self._news.wait(None if deadline is None else deadline - time.monotonic()):
                    raise self._too_late()
            return self._answers.popleft() if self._answers else None

    async def next_async(self) -> WireAnswer | BaseException | None:
        """The same on an event loop."""
        while True:
            with self._news:
                if self._answers or self._is_final:
                    return self._answers.popleft() if self._answers else None
                future = self._future = asyncio.get_running_loop().create_future()
                patience = self._timeout_s if self._is_executed else None
            try:
                await asyncio.wait_for(future, patience)
            except TimeoutError:
                raise self._too_late() from None

    def _tell(self) -> None:
        self._news.notify_all()
        future, self._future = self._future, None
        if future is not None:
            with suppress(RuntimeError):  # the model has closed its loop
                future.get_loop().call_soon_threadsafe(_settle, future)

    def _too_late(self) -> TimeoutError:
        self.is_given_up = True
        return TimeoutError(
            f"{self._label} had no response {self._timeout_s:g} s after execute returned (answer_timeout_s)"
        )


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
