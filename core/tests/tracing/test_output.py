from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Sequence

import pytest
from tritonpy.tracing.files import TraceStream
from tritonpy.tracing.output import TraceOutput
from tritonpy.tracing.trace import FinishedTrace

from .support import Kept, finished

STREAM = TraceStream("t")


class Slow(Kept):
    """Takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        self.begun.set()
        assert self.gate.wait(20)
        super().take(traces)


def test_traces_arrive_in_order_on_a_thread_that_ends_with_the_output() -> None:
    kept = Kept()
    output = TraceOutput(kept)
    before = set(threading.enumerate())
    for number in range(600):
        output.put(finished(STREAM, str(number)))
    output.end_stream(STREAM)
    output.close()

    assert [trace.spans[0].request_id for trace in kept.traces] == [str(number) for number in range(600)]
    assert (kept.ended, kept.is_closed.is_set()) == ([STREAM], True)
    assert set(threading.enumerate()) <= before


def test_without_traces_there_is_no_thread() -> None:
    kept = Kept()
    before = set(threading.enumerate())
    output = TraceOutput(kept)
    output.end_stream(STREAM)

    assert set(threading.enumerate()) <= before
    output.close()
    assert kept.is_closed.is_set()


def test_what_waits_for_a_slow_disk_is_bounded_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tritonpy.tracing")
    slow = Slow()
    one = finished(STREAM).byte_size
    output = TraceOutput(slow, most_held_bytes=3 * one)
    output.put(finished(STREAM, "first"))
    assert slow.begun.wait(20)
    for number in range(10):
        output.put(finished(STREAM, str(number)))
    slow.gate.set()
    output.close()

    assert [trace.spans[0].request_id for trace in slow.traces] == ["first", "0", "1"]
    assert "8 traces were dropped" in caplog.text


def test_a_trace_larger_than_the_limit_is_taken_when_nothing_waits() -> None:
    kept = Kept()
    output = TraceOutput(kept, most_held_bytes=1)
    output.put(finished(STREAM, "large"))
    output.close()

    assert len(kept.traces) == 1


def test_a_destination_that_fails_costs_what_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Kept):
        def take(self, traces: Sequence[FinishedTrace]) -> None:
            raise RuntimeError("broken")

    failing = Failing()
    output = TraceOutput(failing)
    output.put(finished(STREAM))
    output.close()

    assert failing.is_closed.is_set()
    assert "traces could not be written" in caplog.text


def test_a_trace_that_comes_too_late_is_dropped() -> None:
    kept = Kept()
    output = TraceOutput(kept)
    output.close()
    output.put(finished(STREAM))

    assert kept.traces == []


def test_a_trace_may_end_while_another_one_is_put() -> None:
    """The garbage collector runs where it likes, also inside of `put`."""
    kept = Kept()
    output = TraceOutput(kept)

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            output.put(finished(STREAM, "collected"))

    gc.collect()
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(50):
            Cycle()
            output.put(finished(STREAM, "put"))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    output.close()

    assert len(kept.traces) == 100
