"""What the router traces, and its notes, on a clock of the test."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count

import pytest
from tritonpy.tracing.settings import TraceLevel, TraceSettings
from tritonpy.tracing.trace import FinishedTrace
from tritonpy_router.replica import Place, Replica
from tritonpy_router.request_spans import RequestSpans
from tritonpy_router.scan import Asked
from tritonpy_router.tracing import RouterTracing, open_tracing

PARENT = b"00-" + b"a" * 32 + b"-" + b"b" * 16


class Kept:
    """A destination that keeps what it is given."""

    def __init__(self) -> None:
        self.traces: list[FinishedTrace] = []

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        self.traces += traces

    def end_stream(self, stream: object) -> None:
        raise AssertionError("it has no streams")

    def close(self) -> None:
        """Nothing to do."""


def begun(rate: int, *parents: bytes | None, most: int = -1) -> list[bool]:
    """Which of some requests are traced."""
    tracing = RouterTracing(TraceSettings(TraceLevel.TIMESTAMPS, rate, most), Kept())
    headers = [[] if each is None else [(b"host", b"h"), (b"traceparent", each)] for each in parents]
    traced = [tracing.begin(each, 0, {}) for each in headers]
    tracing.close()
    return [each is not None for each in traced]


def test_of_requests_that_say_nothing_one_in_rate_is_traced() -> None:
    assert begun(3, *[None] * 7) == [False, False, True, False, False, True, False]
    assert begun(1, *[None] * 4, most=2) == [True, True, False, False]
    assert begun(0, None) == [False]


def test_a_client_decides_about_its_own_requests() -> None:
    sampled, not_sampled = PARENT + b"-01", PARENT + b"-00"

    assert begun(0, sampled, not_sampled, sampled) == [True, False, True]
    # Those that it traces or not do not count for others, and what cannot be read is no word of it.
    assert begun(2, sampled, not_sampled, None, b"nonsense") == [True, False, False, True]


def test_nothing_is_traced_without_a_level_or_to_files(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tritonpy.router")

    assert open_tracing(()) is None
    assert open_tracing((("", "mode", "opentelemetry"),)) is None
    assert not caplog.records
    assert open_tracing((("", "level", "TIMESTAMPS"), ("triton", "file", "t"))) is None
    assert "--trace-config mode=opentelemetry" in caplog.text


def spans_of_one(kept: list[FinishedTrace]) -> RequestSpans:
    """Spans whose clock is a second later whenever it is asked."""
    seconds = count(10)
    tracing = RouterTracing(
        TraceSettings(TraceLevel.TIMESTAMPS, 1), Kept(), lambda: next(seconds) * 1_000_000_000
    )
    spans = tracing.begin([(b"traceparent", PARENT + b"-01")], 5_000_000_000, {"how": "so"})
    assert spans is not None
    spans._put = kept.append
    return spans


def test_waits_and_attempts_have_their_own_times() -> None:
    kept: list[FinishedTrace] = []
    spans, asked = spans_of_one(kept), Asked("m", "2", "seven")
    replicas = [Replica(Place(name, f"host-{name}", 8000, 8001)) for name in "ab"]

    spans.names(asked)
    for number, replica in enumerate(replicas):
        spans.waits("it", asked)
        spans.picked("it", replica)
        spans.tries(number, replica, 8001)
        spans.sent(number)
        if not number:
            spans.attempt_ends(number, "it was lost")
    spans.answers(1)
    spans.outcome(None, ("status", 0))
    spans.end()

    [trace] = kept
    assert [
        (span.name, span.begun_ns // 10**9, span.ended_ns // 10**9, span.error) for span in trace.described
    ] == [
        ("RouteRequest", 5, 22, None),
        ("queue", 11, 12, None),
        ("attempt", 13, 15, "it was lost"),
        ("queue", 16, 17, None),
        ("attempt", 18, 21, None),
    ]
    root, *_, last = trace.described
    assert root.attributes == {
        "how": "so",
        "triton.model_name": "m",
        "triton.model_version": "2",
        "triton.request_id": "seven",
        "tritonpy.replica": "b",
        "tritonpy.attempt_count": 2,
        "status": 0,
    }
    assert last.attributes == {
        "tritonpy.replica": "b",
        "tritonpy.attempt": 2,
        "server.address": "host-b",
        "server.port": 8001,
        "status": 0,
    }
    assert root.parent_id == "b" * 16
    assert {span.parent_id for span in trace.described[1:]} == {root.span_id}


def test_what_is_open_ends_with_the_request_and_its_error() -> None:
    kept: list[FinishedTrace] = []
    spans = spans_of_one(kept)
    spans.waits("it", Asked("m"))
    spans.tries("attempt", Replica(Place("a", "h", 1, 2)), 1)

    spans.client_left()
    spans.end()

    [trace] = kept
    assert {span.error for span in trace.described} == {"the client was gone before it had its answer"}
    assert all(span.ended_ns for span in trace.described)


def test_waits_of_a_stream_without_an_end_are_bounded() -> None:
    kept: list[FinishedTrace] = []
    spans = spans_of_one(kept)
    replica = Replica(Place("a", "h", 1, 2))
    for number in range(1005):
        spans.waits(number, Asked("m"))
        spans.picked(number, replica)
    spans.end()

    [trace] = kept
    assert len(trace.described) == 1 + 1000
    assert trace.described[0].attributes["tritonpy.queue_count"] == 1005
