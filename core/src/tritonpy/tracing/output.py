"""The thread that writes traces, so that no disk and no collector makes a request wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

from tritonpy.tracing.files import TraceStream
from tritonpy.tracing.trace import FinishedTrace

_log = logging.getLogger("tritonpy.tracing")

MOST_HELD_BYTES = 64 * 1024 * 1024
"""What may wait to be written; above it traces are dropped, and the log says how many."""

_AT_ONCE = 1024
_GATHER_S = 0.02  # traces that come soon after each other are written together: to wake up for each is dear
_CLOSE_TIMEOUT_S = 10.0
_COMPLAINT_PAUSE_S = 10.0


class TraceDestination(Protocol):
    """Where traces go; called on the writing thread only."""

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        """Write these."""

    def end_stream(self, stream: object) -> None:
        """Nothing new begins in a stream; what is under way may still come."""

    def close(self) -> None:
        """Nothing comes any more."""


class TraceOutput:
    """Hands traces to their destination on a thread of its own, which starts with the first of them.

    Args:
        destination: where they go.
        most_held_bytes: what may wait.
    """

    def __init__(self, destination: TraceDestination, most_held_bytes: int = MOST_HELD_BYTES) -> None:
        self._destination = destination
        self._limit = most_held_bytes
        self._queue: SimpleQueue[FinishedTrace | _StreamEnd | None] = SimpleQueue()
        # Reentrant: a trace that ends because the garbage collector runs in here comes in again.
        self._guard = threading.RLock()
        self._held_bytes = 0
        self._dropped_count = 0
        self._complained_at = -_COMPLAINT_PAUSE_S
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def put(self, trace: FinishedTrace) -> None:
        """See `TraceTaker`; one that finds too much waiting is dropped."""
        with self._guard:
            if self._is_closed:
                return
            if self._held_bytes and self._held_bytes + trace.byte_size > self._limit:
                self._dropped_count += 1
                if isinstance(trace.stream, TraceStream):
                    trace.stream.dropped_count += 1
                return
            self._held_bytes += trace.byte_size
            self._start()
            self._queue.put(trace)  # with the lock: nothing may come behind the end

    def end_stream(self, stream: object) -> None:
        """See `TraceDestination`; returns at once."""
        with self._guard:
            if self._thread is None or self._is_closed:
                return
            self._queue.put(_StreamEnd(stream))

    def close(self) -> None:
        """Write what waits and end the thread; a destination that hangs is left behind after 10 s."""
        with self._guard:
            self._is_closed = True
            thread = self._thread
        if thread is None:
            self._destination.close()
            return
        self._queue.put(None)
        thread.join(_CLOSE_TIMEOUT_S)
        if thread.is_alive():
            _log.error("traces could not be written within %g s: some are lost", _CLOSE_TIMEOUT_S)

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="tritonpy-traces", daemon=True)
        if self._thread is None:  # still: a trace may have come in meanwhile, from the garbage collector
            self._thread = thread
            thread.start()

    # On the thread.

    def _run(self) -> None:
        is_open = True
        while is_open:
            items = [self._queue.get()]
            if items[0] is not None:
                time.sleep(_GATHER_S)
            while len(items) < _AT_ONCE:
                try:
                    items.append(self._queue.get_nowait())
                except Empty:
                    break
            is_open = None not in items
            try:
                self._handle(items)
            except Exception:  # a destination that fails costs traces, never the thread
                _log.exception("%d traces could not be written", len(items))
            with self._guard:
                self._held_bytes -= sum(item.byte_size for item in items if isinstance(item, FinishedTrace))
            self._complain()
        self._destination.close()

    def _handle(self, items: Sequence[FinishedTrace | _StreamEnd | None]) -> None:
        traces: list[FinishedTrace] = []
        for item in items:
            if isinstance(item, FinishedTrace):
                traces.append(item)
            elif item is not None:
                self._destination.take(traces)
                traces = []
                self._destination.end_stream(item.stream)
        if traces:
            self._destination.take(traces)

    def _complain(self) -> None:
        now = time.monotonic()
        if not self._dropped_count or now - self._complained_at < _COMPLAINT_PAUSE_S:
            return
        with self._guard:
            count, self._dropped_count = self._dropped_count, 0
        self._complained_at = now
        _log.warning(
            "%d traces were dropped: %d bytes of them wait already; raise trace_rate or take a faster disk",
            count,
            self._limit,
        )


class _StreamEnd:
    """Stands in the queue behind the last trace of a stream, as far as that is known."""

    __slots__ = ("stream",)

    def __init__(self, stream: object) -> None:
        self.stream = stream
