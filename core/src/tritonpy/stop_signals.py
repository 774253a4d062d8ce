"""Stop signals for a program whose event loop is stuck and cannot handle them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import logging
import math
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from types import FrameType

from tritonpy import logs

_log = logging.getLogger("tritonpy.server")

_ANSWER_S = 5.0
"""How long a loop may not answer before it is taken for stuck."""

_PAUSE_S = 5.0  # between an answer and the next question

_SAME_S = 1.0
"""Signals that come so close together are one wish: a terminal and a supervisor may both pass on a Ctrl-C."""

_LATE_S = 10.0
_LATE_LOOKS = 6
"""For how long an alarm is looked for that a signal sets off late: none is set for more than 64 s."""

_FAILED = 1

_STOPS = frozenset((signal.SIGINT, signal.SIGTERM))


class StopSignals:
    """Passes signals on to the running loop, and ends the program if the loop does not handle them.

    What runs on the loop and does not return, such as a batching strategy that hangs, keeps the loop from
    its signals, and the program alive until it is killed. So a thread gets signals first. A second
    signal that asks for the end gets it at once. Where not even a thread of Python runs, because an extension
    keeps the interpreter's lock, see `_Alarm`.

    Made on the main thread, by the loop, after its handlers are added.

    Args:
        timeout_s: how long the loop may take for its own end before it is asked whether it still runs.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = min(timeout_s, threading.TIMEOUT_MAX)
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._closed = threading.Event()
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._alarm = _Alarm(self._ours, timeout_s) if sys.platform == "linux" else None
        # Python writes the numbers of signals there at once, in any state of its threads.
        self._of_loop = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        self._relay = threading.Thread(target=self._pass_on, name="tritonpy-signals", daemon=True)
        self._relay.start()

    def close(self) -> None:
        """Give the signals back to the loop, which is about to end."""
        self._closed.set()
        if self._alarm is not None:
            self._alarm.close()  # the end of the socket would set it off
        signal.set_wakeup_fd(self._of_loop)
        self._theirs.close()
        self._relay.join()
        self._ours.close()
        faulthandler.cancel_dump_traceback_later()

    def _pass_on(self) -> None:
        told_s: float | None = None
        late_looks = 0
        # No `recv` that blocks: of what such a thread is woken by, the system does not tell `_Alarm`.
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            while True:
                if self._alarm is not None and late_looks and not selector.select(_LATE_S):
                    late_looks -= 1
                    self._alarm.put_off()
                    continue
                selector.select()
                numbers = self._ours.recv(64)
                if not numbers:
                    return
                late_looks = _LATE_LOOKS
                told_s = self._take(numbers, told_s)

    def _take(self, numbers: bytes, told_s: float | None) -> float | None:
        """Take signals that have come; returns when the first came that asks for the end."""
        if self._alarm is not None:
            self._alarm.put_off()
        with contextlib.suppress(OSError):  # its socket is full: one more byte changes nothing
            os.write(self._of_loop, numbers)
        if not _STOPS & set(numbers):
            return told_s
        if told_s is None:
            threading.Thread(target=self._end_when_late, name="tritonpy-end", daemon=True).start()
            return time.monotonic()
        if time.monotonic() - told_s > _SAME_S and not self._closed.is_set():
            self._end_at_once()
        return told_s

    def _end_when_late(self) -> None:
        self._end_without_python(self._timeout_s)
        self._closed.wait(self._timeout_s)
        while not self._closed.is_set():
            self._end_without_python(_PAUSE_S)
            if not self._answers(_ANSWER_S) and not self._closed.is_set():
                self._end(
                    f"The event loop is stuck and has not answered for {_ANSWER_S:g} s after the exit timeout"
                )
            self._closed.wait(_PAUSE_S)

    def _end_at_once(self) -> None:
        text = "The program was told to end once more"
        if self._answers(min(1.0, _ANSWER_S)):
            self._end(text, is_stuck=False)
        self._end(f"{text}, and its event loop is stuck")

    def _answers(self, timeout_s: float) -> bool:
        answered = threading.Event()
        with contextlib.suppress(RuntimeError):  # it has just ended
            self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(timeout_s)

    def _end_without_python(self, after_s: float) -> None:
        """Have the process end if no thread of Python runs for long after that time."""
        late_s = after_s + 3 * (_ANSWER_S + _PAUSE_S)
        with contextlib.suppress(
            OverflowError, ValueError, OSError
        ):  # beyond all bounds; or there is no stderr
            faulthandler.dump_traceback_later(late_s, exit=True, file=logs.descriptor())

    def _end(self, reason: str, is_stuck: bool = True) -> None:
        frame = sys._current_frames().get(self._thread_id) if is_stuck else None
        place = ""
        if frame is not None:
            place = f"; it is in {_place(frame)}"
            stack = "".join(traceback.format_stack(frame)).rstrip()
            _log.critical("The event loop is stuck", extra={"table": stack})
        text = f"{reason}: the program ends, and requests in flight are not answered{place}"
        _log.critical("%s", text)
        if (log := logs.running()) is not None:
            log.close()
        os._exit(_FAILED)


def _place(frame: FrameType) -> str:
    """The line that a thread executes, and the owner of the code where a caller has a property `blame`."""
    code = frame.f_code
    place = f"{code.co_qualname}, {code.co_filename}:{frame.f_lineno}"
    caller: FrameType | None = frame
    while caller is not None:
        holder = caller.f_locals.get("self")
        blame = getattr(type(holder), "blame", None)  # of the class: no code of others runs
        if isinstance(blame, property):
            return f"{blame.__get__(holder)}, in {place}"
        caller = caller.f_back
    return place


class _Alarm:
    """Ends a process that was asked to end and whose interpreter's lock is not released.

    Nothing in Python can run then, so the system does it. For the byte that Python's handler writes to the
    socket it sends another signal, whose handler is `alarm(2)` itself: this takes the number of the signal
    for seconds, anew with each byte. When they are over, the stacks of all threads are written, and the
    process ends. A second byte must not end it: two may come before the relay of a server that is well runs.
    The relay puts the end off whenever it runs. The byte is the same for each signal that Python handles, so
    a lock that is kept for that long ends the process after any of them.

    No signal is ever ignored for this: children would inherit that.
    """

    _F_SETSIG = 10
    _SA_RESTART = 0x10000000

    class _Action(ctypes.Structure):
        """`struct sigaction` of glibc and musl, where pointers have 64 bits."""

        _fields_ = (
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_ulong * 16),
            ("flags", ctypes.c_uint),
            ("restorer", ctypes.c_void_p),
        )

    def __init__(self, told: socket.socket, timeout_s: float) -> None:
        import fcntl  # Windows has none

        self._libc = ctypes.CDLL(None)
        seconds = math.ceil(min(timeout_s, signal.SIGRTMAX)) + math.ceil(_ANSWER_S)
        self._number = min(max(seconds, signal.SIGRTMIN), signal.SIGRTMAX)
        with contextlib.suppress(ValueError, OSError):  # nothing is open that the stacks could be written to
            faulthandler.register(signal.SIGALRM, file=logs.descriptor(), all_threads=True, chain=True)
        handler = ctypes.cast(self._libc.alarm, ctypes.c_void_p).value
        self._handle(self._number, handler, self._SA_RESTART)
        self._told = told
        descriptor = told.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, self._F_SETSIG, self._number)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | fcntl.FASYNC)

    def put_off(self) -> None:
        """Cancel the alarm that a signal has set: threads of Python run."""
        signal.alarm(0)

    def close(self) -> None:
        """Set no alarm any more; signals that are still on their way change nothing."""
        import fcntl

        descriptor = self._told.fileno()
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~fcntl.FASYNC)
        faulthandler.unregister(signal.SIGALRM)
        nothing = ctypes.cast(self._libc.abs, ctypes.c_void_p).value  # a handler that has no effect
        for number in (self._number, signal.SIGALRM):
            self._handle(number, nothing, self._SA_RESTART)
        signal.alarm(0)

    def _handle(self, number: int, handler: int | None, flags: int) -> None:
        action = self._Action(handler=handler, flags=flags)
        self._libc.sigaction(number, ctypes.byref(action), None)
