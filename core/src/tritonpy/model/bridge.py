"""The one way back from a thread to the loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.bridge")


class LoopBridge:
    """Runs callables on the loop in the order they were posted, waking the loop once for many.

    It is also the outbox of requests that run on threads of this process.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()  # Any: the callable's
        self._is_awake = False

    def call(self, function: Callable[..., object], *args: Any) -> None:  # Any: the callable's arguments
        """Have the loop call `function(*args)`; from any thread."""
        self._calls.append((function, args))
        if not self._is_awake:
            self._is_awake = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody is left to answer to
                self._calls.clear()

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Deliver a response on the loop; see `Outbox`."""
        self.call(request.deliver, response, final)

    def _drain(self) -> None:
        # Cleared first: a post that comes while we drain either is seen below or wakes the loop again.
        self._is_awake = False
        calls = self._calls
        while calls:
            function, args = calls.popleft()
            try:
                function(*args)
            except Exception:
                _log.exception("a callback from a model's thread failed")
