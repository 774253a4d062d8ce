"""The end of a program whose event loop is stuck: nobody else hears the signal that asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading

from tritonpy import logs

_log = logging.getLogger("tritonpy.server")

_ANSWER_S = 5.0
"""How long a loop may not answer before it is taken for stuck."""

_PAUSE_S = 5.0  # between an answer and the next question

_FAILED = 1


class StopSignals:
    """Passes signals on to the running loop, and ends the program where that never comes to answer them.

    What runs on the loop and does not return, such as a batching strategy that hangs, keeps the loop from its
    signals, and the program alive until somebody kills it. So a thread hears of signals first.

    Made on the main thread, by the loop, after its handlers are added.

    Args:
        timeout_s: how long the loop may take for its own end before it is asked whether it still runs.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._closed = threading.Event()
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        # Python writes the numbers of signals there at once, whatever its threads are doing.
        self._of_loop = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        self._relay = threading.Thread(target=self._pass_on, name="tritonpy-signals", daemon=True)
        self._relay.start()

    def close(self) -> None:
        """Give the signals back to the loop, which is about to end."""
        self._closed.set()
        signal.set_wakeup_fd(self._of_loop)
        self._theirs.close()
        self._relay.join()
        self._ours.close()

    def _pass_on(self) -> None:
        is_ending = False
        while numbers := self._ours.recv(64):
            with contextlib.suppress(OSError):  # it has so many that one more changes nothing
                os.write(self._of_loop, numbers)
            if not is_ending and {signal.SIGINT, signal.SIGTERM} & set(numbers):
                is_ending = True
                threading.Thread(target=self._see_to_the_end, name="tritonpy-end", daemon=True).start()

    def _see_to_the_end(self) -> None:
        self._closed.wait(min(self._timeout_s, threading.TIMEOUT_MAX))
        while not self._closed.is_set():
            answered = threading.Event()
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(answered.set)
            if not answered.wait(_ANSWER_S) and not self._closed.is_set():
                self._end()
            self._closed.wait(_PAUSE_S)

    def _end(self) -> None:
        _log.critical(
            "The event loop is stuck and has not answered for %g s after the exit timeout: the program ends, "
            "and requests in flight are not answered",
            _ANSWER_S,
        )
        if (log := logs.running()) is not None:
            log.close()
        os._exit(_FAILED)
