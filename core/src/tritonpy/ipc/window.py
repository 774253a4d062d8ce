"""Send window: how far the sender of a stream of responses may be ahead of the server.

A sender asks, now and then, whether it may go on; the server answers when the client has room. The question
travels behind the responses, so by the answer all of them have arrived. It is asked early, so that a sender
whose client keeps up never waits.

A thread that answers several requests must not wait long for the client of one: the others would notice. Such
are threads that run an event loop, those that execute a batch of several requests, and any that has answered
one request while another was open. They wait for a moment, then go on, and it is the server that gives up a
request whose client cannot follow.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

MOST_RESPONSES = 256
"""Responses that may be under way to the server without an answer."""
MOST_BYTE_SIZE = 8 * 1024 * 1024
"""Their bytes; one that is larger goes alone."""


_MOMENT_S = 1.0


class Permission(Protocol):
    """The answer to come; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """True once it has come."""

    def wait(self, timeout: float | None = None) -> Any:  # Any: never looked at
        """Return when it has come, never will, or the time is over; called once it has come as well."""


class _Thread(threading.local):
    """The requests that a thread answers: its last window, and if there are several."""

    window: SendWindow | None = None
    is_executing_several = False
    has_answered_several = False


_thread = _Thread()


def execute_several(several: bool) -> None:
    """Say that this thread executes a batch of several requests from now on, or no longer."""
    _thread.is_executing_several = several


def _runs_event_loop() -> bool:
    events = sys.modules.get("asyncio.events")  # a program that has not imported it runs none
    return events is not None and events._get_running_loop() is not None


class SendWindow:
    """The responses of one request that are on their way; from any thread.

    Attributes:
        is_over: the last one has been sent.
    """

    __slots__ = ("_asked_at", "_byte_size", "_count", "_lock", "_permission", "_was_patient", "is_over")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._byte_size = 0
        self._asked_at = (0, 0)
        self._permission: Permission | None = None
        self._was_patient = False
        self.is_over = False

    @property
    def is_full(self) -> bool:
        """True if `wait` would wait now."""
        permission = self._permission
        return permission is not None and self._has_sent_most() and not permission.is_set()

    def _has_sent_most(self) -> bool:
        return self._count >= MOST_RESPONSES or self._byte_size >= MOST_BYTE_SIZE

    def wait(self) -> None:
        """Return when one more response may be sent, or when this thread has waited for a moment."""
        if _thread.window is not self:
            if _thread.window is not None and not _thread.window.is_over:
                _thread.has_answered_several = True
            _thread.window = self
        permission = self._permission
        if permission is None:
            return
        timeout = None
        if not permission.is_set():
            if not self._has_sent_most():
                return
            if _thread.is_executing_several or _thread.has_answered_several or _runs_event_loop():
                if self._was_patient:
                    return
                self._was_patient = True
                timeout = _MOMENT_S
        permission.wait(timeout)
        if not permission.is_set():
            return
        self._was_patient = False
        with self._lock:
            if self._permission is permission:
                self._permission = None
                self._count -= self._asked_at[0]
                self._byte_size -= self._asked_at[1]

    def sent(self, byte_size: int, ask: Callable[[], Permission]) -> None:
        """Count a response that was sent and is not the last one.

        Args:
            byte_size: of the response.
            ask: asks the server whether more may follow; called when it is time to.
        """
        with self._lock:
            self._count += 1
            self._byte_size += byte_size
            if self._permission is None and (
                self._count * 2 >= MOST_RESPONSES or self._byte_size * 2 >= MOST_BYTE_SIZE
            ):
                self._asked_at = self._count, self._byte_size
                self._permission = ask()

    def end(self) -> Permission | None:
        """Nothing follows; returns the answer that is still to come but not waited for, if there is one."""
        self.is_over = True
        if _thread.window is self:
            _thread.window = None
        permission, self._permission = self._permission, None
        return permission
