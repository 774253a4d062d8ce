"""The way back from a model's threads to the loop, on which senders may have to wait for slow clients."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tritonpy.ipc.window import Permission, SendWindow
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.bridge")

_MOST_AT_ONCE = 64
_MOST_WAITING = 1024


class LoopBridge:
    """Runs callables on the loop in the order they were posted, waking the loop once for many.

    It is also the outbox of requests that run on threads of this process. A model that answers faster than
    the loop can hand on waits in `post`; the loop takes some answers at a time, so that all are served.

    Made on the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()  # Any: the callable's
        self._is_awake = False
        self._loop_thread = threading.get_ident()
        self._room = threading.Condition()
        self._waiting_count = 0

    def call(self, function: Callable[..., object], *args: Any) -> None:  # Any: the callable's arguments
        """Have the loop call `function(*args)`; from any thread."""
        self._calls.append((function, args))
        if not self._is_awake:
            self._is_awake = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: no one is left to answer
                self._calls.clear()

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Deliver a response on the loop; see `Outbox`."""
        if len(self._calls) >= _MOST_WAITING and threading.get_ident() != self._loop_thread:
            self._wait_for_room()
        clock = request.ticket.clock
        if clock is None:
            self.call(request.deliver, response, final)
        else:
            self.call(_deliver_timed, request, response, final, clock.lap())

    def _wait_for_room(self) -> None:
        with self._room:
            self._waiting_count += 1
            while len(self._calls) >= _MOST_WAITING and not self._loop.is_closed():
                self._room.wait(0.1)
            self._waiting_count -= 1

    def _drain(self) -> None:
        calls = self._calls
        for _ in range(min(len(calls), _MOST_AT_ONCE)):
            function, args = calls.popleft()
            try:
                function(*args)
            except Exception:
                _log.exception("a callback from a model's thread failed")
        if self._waiting_count:
            with self._room:
                self._room.notify_all()
        if not calls:
            self._is_awake = False
            if not calls:  # nothing was posted by a thread that still saw us awake
                return
            self._is_awake = True
        self._loop.call_soon(self._drain)


def _deliver_timed(
    request: InferRequest, response: InferResponse | None, final: bool, durations: tuple[int, int]
) -> None:
    request.count_response(response, durations)
    request.deliver(response, final)


class StreamOutbox:
    """Takes the responses of one request; its thread waits in `post` for a client that is slow.

    Satisfies `Outbox`.

    Args:
        bridge: brings them to the loop.
        window: how far they are ahead.
    """

    __slots__ = ("_bridge", "_window")

    def __init__(self, bridge: LoopBridge, window: SendWindow) -> None:
        self._bridge = bridge
        self._window = window

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        window = self._window
        if final:
            window.end()
            self._bridge.post(request, response, True)
            return
        window.wait()
        self._bridge.post(request, response, False)
        byte_size = sum(tensor.byte_size for tensor in response.outputs) if response is not None else 0
        window.sent(byte_size, lambda: self._ask(request))

    def _ask(self, request: InferRequest) -> Permission:
        permission = threading.Event()
        self._bridge.call(_when_open, request, permission)
        return permission


def _when_open(request: InferRequest, permission: threading.Event) -> None:
    request.response_flow().when_open(permission.set)
