"""Watch over the event loop: its lag, and its stack when it is silent."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

LOG = logging.getLogger("tritonpy.metrics.loop_watch")


class LoopWatch:
    """Measures the loop's lag with a timer, and logs the loop's stack from a thread when the timer is silent.

    Code that blocks the loop blocks every client, so it has to be found: the stack names the line. A long
    silence is logged once, and once more when it is over.

    Args:
        observe_lag_s: called on the loop, at every beat, with the seconds by which the beat was late.
        interval_s: time between beats.
        silence_s: time without a beat after which the stack is logged.
    """

    def __init__(
        self, observe_lag_s: Callable[[float], None], *, interval_s: float = 0.1, silence_s: float = 1.0
    ) -> None:
        self._observe_lag_s = observe_lag_s
        self._interval_s = interval_s
        self._silence_s = silence_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread_id = 0
        self._due_s = 0.0
        self._last_beat_s = 0.0  # written on the loop, read by the thread: one float, no lock needed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tritonpy-loop-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch the running loop; call on it."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._last_beat_s = time.monotonic()
        self._schedule()
        self._thread.start()

    def stop(self) -> None:
        """End the timer and the thread; call on the loop."""
        if self._timer is not None:
            self._timer.cancel()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _schedule(self) -> None:
        assert self._loop is not None  # set by start
        self._due_s = time.monotonic() + self._interval_s
        self._timer = self._loop.call_later(self._interval_s, self._beat)

    def _beat(self) -> None:
        now_s = time.monotonic()
        self._last_beat_s = now_s
        # uvloop rounds timers to milliseconds, so a beat may come a little early.
        self._observe_lag_s(max(0.0, now_s - self._due_s))
        self._schedule()

    def _watch(self) -> None:
        silent_since_s = 0.0
        while not self._stopping.wait(self._silence_s / 2):
            last_beat_s = self._last_beat_s
            if silent_since_s and last_beat_s != silent_since_s:
                LOG.warning("the event loop runs again after %.1f s", time.monotonic() - silent_since_s)
                silent_since_s = 0.0
            silence_s = time.monotonic() - last_beat_s
            if silence_s > self._silence_s and not silent_since_s:
                silent_since_s = last_beat_s
                LOG.warning("the event loop has been silent for %.1f s", silence_s, extra=self._stack())

    def _stack(self) -> dict[str, str]:
        frame = sys._current_frames().get(self._loop_thread_id)
        text = "".join(traceback.format_stack(frame)) if frame is not None else ""
        return {"table": text.rstrip()}
