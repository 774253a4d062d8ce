"""An alarm that wakes an event loop within microseconds, where the timers of loops have milliseconds."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_NONBLOCK = 0o4000
_CLOEXEC = 0o2000000


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Alarm:
    """Calls a function in the running event loop at a time of `time.monotonic_ns`.

    On Linux the kernel's timer is a descriptor that the loop waits for. Elsewhere it is a timer of the loop,
    which may be a millisecond late.

    Args:
        ring: is called each time.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._libc: ctypes.CDLL | None = None
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
            if self._descriptor < 0:
                self._libc = None
            else:
                self._loop.add_reader(self._descriptor, self._read)

    def set(self, at_ns: int) -> None:
        """Ring once at a time, at once if it has passed; the time set before is forgotten."""
        wait_ns = max(1, at_ns - time.monotonic_ns())
        if self._libc is not None:
            spec = _TimerSpec(0, 0, wait_ns // 1_000_000_000, wait_ns % 1_000_000_000)
            self._libc.timerfd_settime(self._descriptor, 0, ctypes.byref(spec), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(wait_ns / 1e9, self._ring)

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._libc is not None:
            self._libc = None
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _read(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:  # set anew since it rang
            return
        self._ring()
