from __future__ import annotations

import json

import pytest
from tritonpy.tracing.context import TraceContext, new_context, new_span_id, read_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_headers_bring_a_context() -> None:
    assert read_context(f" 00-{TRACE}-{SPAN}-01 ", " a=b ") == TraceContext(TRACE, SPAN, "a=b", True)
    assert read_context(f"00-{TRACE}-{SPAN}-00", None) == TraceContext(TRACE, SPAN, "", False)
    assert read_context(f"00-{TRACE}-{SPAN}-03", None) == TraceContext(TRACE, SPAN, "", True)


def test_a_later_version_may_say_more() -> None:
    assert read_context(f"cc-{TRACE}-{SPAN}-01-what-the-future-is-like", None) == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}x-{SPAN}-01",
    ],
)
def test_a_header_that_makes_no_sense_brings_none(header: str | None) -> None:
    assert read_context(header, "a=b") is None


@pytest.mark.parametrize("state", ["x" * 513, "a=b\x00"])
def test_a_state_that_need_not_be_passed_on_is_dropped(state: str) -> None:
    context = read_context(f"00-{TRACE}-{SPAN}-01", state)

    assert context is not None
    assert context.state == ""


def test_a_context_that_is_passed_on_can_be_read() -> None:
    context, span = TraceContext(TRACE, SPAN, "a=b"), new_span_id()
    carrier = json.loads(context.carried(span))

    assert read_context(carrier["traceparent"], carrier["tracestate"]) == TraceContext(TRACE, span, "a=b")


def test_new_ids_differ_and_are_as_long_as_they_must_be() -> None:
    assert len({new_context().trace_id for _ in range(100)}) == 100
    assert {len(new_context().trace_id) for _ in range(100)} == {32}
    assert {len(new_span_id()) for _ in range(100)} == {16}
