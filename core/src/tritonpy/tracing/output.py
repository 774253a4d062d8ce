"""The thread that writes traces, so that no disk and no collector makes a request wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from tritonpy.errors import InvalidArg
from tritonpy.line_writer import LineWriter
from tritonpy.tracing.files import TraceStream
from tritonpy.tracing.settings import TRITON, CollectorSettings, TraceOrigin
from tritonpy.tracing.trace import FinishedTrace

_log = logging.getLogger("tritonpy.tracing")

MOST_HELD_BYTES = 64 * 1024 * 1024
"""Limit of traces that wait to be written; beyond it they are dropped, and the log says how many."""

_GATHER_S = 0.02  # what comes that soon is written together: to wake up for each trace is dear
_CLOSE_TIMEOUT_S = 10.0


class TraceDestination(Protocol):
    """A destination of traces; called on the writing thread only."""

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        """Write these."""

    def end_stream(self, stream: object) -> None:
        """No new traces begin in a stream; those under way may still come."""

    def close(self) -> None:
        """Nothing comes any more."""


def collector_destination(settings: CollectorSettings, origin: TraceOrigin = TRITON) -> TraceDestination:
    """The way to a collector.

    Raises:
        InvalidArg: OpenTelemetry's SDK is not installed.
    """
    try:
        from tritonpy.tracing.collector import SpanExport
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("opentelemetry"):
            raise
        raise InvalidArg(
            f"trace mode 'opentelemetry' needs OpenTelemetry's SDK ('{exc.name}' is not installed): "
            f"pip install 'tritonpy[opentelemetry]'"
        ) from None
    return SpanExport(settings, origin)


class TraceOutput:
    """Hands traces to their destination on a thread of its own, which starts with the first of them.

    Args:
        destination: where they go.
        most_held_bytes: what may wait.
    """

    def __init__(self, destination: TraceDestination, most_held_bytes: int = MOST_HELD_BYTES) -> None:
        self._destination = destination
        self._is_closed = False
        self._limit = most_held_bytes
        self._writer: LineWriter[FinishedTrace | _StreamEnd] = LineWriter(
            "traces", self._write, self._say_dropped, destination.close, most_held_bytes
        )
        # Reentrant: a trace that ends because the garbage collector runs in here comes in again.
        self._counting = threading.RLock()

    def put(self, trace: FinishedTrace) -> None:
        """Take a trace, on any thread, without waiting; drop it if too many wait."""
        if not self._writer.put(trace, trace.byte_size) and isinstance(trace.stream, TraceStream):
            with self._counting:
                trace.stream.dropped_count += 1

    def end_stream(self, stream: object) -> None:
        """End a stream once its traces are written; returns at once."""
        if self._writer.has_begun:
            self._writer.put(_StreamEnd(stream), 0)

    def give_up(self, stream: TraceStream) -> None:
        """Wait no longer for the missing traces of a stream; returns at once."""
        stream.is_overdue = True
        if self._writer.has_begun:
            self._writer.put(_StreamEnd(stream), 0)
        else:
            stream.has_ended = True

    def close(self) -> None:
        """Write what waits and end the thread; a destination that hangs is left behind after 10 s."""
        self._is_closed = True
        if not self._writer.close(_CLOSE_TIMEOUT_S, _CLOSE_TIMEOUT_S):
            _log.error("traces could not be written within %g s: some are lost", _CLOSE_TIMEOUT_S)

    def _write(self, items: Sequence[FinishedTrace | _StreamEnd]) -> None:
        traces: list[FinishedTrace] = []
        for item in items:
            if isinstance(item, FinishedTrace):
                traces.append(item)
            else:
                self._destination.take(traces)
                traces = []
                self._destination.end_stream(item.stream)
        if traces:
            self._destination.take(traces)
        if not self._is_closed:
            time.sleep(_GATHER_S)

    def _say_dropped(self, count: int) -> None:
        _log.warning(
            "%d traces were dropped: %d bytes of them wait already; raise trace_rate or take a faster disk",
            count,
            self._limit,
        )


class _StreamEnd:
    """Marks the end of a stream in the queue, behind its last trace as far as that is known."""

    __slots__ = ("stream",)

    def __init__(self, stream: object) -> None:
        self.stream = stream
