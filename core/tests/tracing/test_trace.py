from __future__ import annotations

import json
import time

import numpy as np
import pytest
from tritonpy.errors import InvalidArg
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor
from tritonpy.tracing.json_text import trace_text
from tritonpy.tracing.settings import TraceLevel
from tritonpy.tracing.trace import FinishedTrace, TraceContext, new_context, new_span_id, read_context

from .support import ALL, Kept, answer, begin, request


def entries(trace: FinishedTrace) -> list[dict[str, object]]:
    return json.loads(b"[" + trace_text(trace) + b"]")


def words(trace: FinishedTrace) -> list[str]:
    return [
        f"{entry['id']} {entry['timestamps'][0]['name']}"  # type: ignore[index]
        if "timestamps" in entry
        else f"{entry['id']} {entry.get('activity', 'model')}"
        for entry in entries(trace)
    ]


def test_a_trace_is_handed_on_when_nobody_holds_it_any_more() -> None:
    kept = Kept()
    trace = begin(kept)
    other = trace

    del trace
    assert kept.traces == []
    del other
    assert len(kept.traces) == 1


def test_a_trace_waits_for_the_requests_that_were_made_for_it() -> None:
    kept = Kept()
    trace = begin(kept)
    child = trace.child("step", "2")

    del trace
    assert kept.traces == []
    del child
    assert [(span.id, span.parent_id, span.model_name) for span in kept.traces[0].spans] == [
        (1, 0, ""),
        (2, 1, "step"),
    ]


def test_a_request_is_written_by_its_time_with_its_model_where_that_begins() -> None:
    kept = Kept()
    trace = begin(kept)
    trace.report_activity("HTTP_RECV_START")
    asked = request("7", a=np.arange(2, dtype=np.int32))
    trace.started(asked.model_name, asked.model_version, asked.id)
    trace.queued(asked.model_version, asked.inputs.values())
    now = time.monotonic_ns()
    trace.computed((now, now + 1, now + 2, now + 3))
    time.sleep(0.000_01)
    trace.responded(InferResponse().add("b", np.array([0.1], np.float32)), True)
    trace.report_activity("HTTP_SEND_START")
    del trace

    assert words(kept.traces[0]) == [
        "1 HTTP_RECV_START",
        "1 model",
        "1 REQUEST_START",
        "1 QUEUE_START",
        "1 TENSOR_QUEUE_INPUT",
        "1 COMPUTE_START",
        "1 COMPUTE_INPUT_END",
        "1 COMPUTE_OUTPUT_START",
        "1 COMPUTE_END",
        "1 TENSOR_BACKEND_OUTPUT",
        "1 INFER_RESPONSE_COMPLETE",
        "1 REQUEST_END",
        "1 HTTP_SEND_START",
    ]
    found = entries(kept.traces[0])
    assert found[1] == {"id": 1, "model_name": "m", "model_version": 1, "request_id": "7"}
    assert found[4] == {
        "id": 1,
        "activity": "TENSOR_QUEUE_INPUT",
        "tensor": {"name": "a", "data": "0,1", "shape": "2", "dtype": "INT32"},
    }


def test_what_a_model_has_asked_for_stands_before_what_it_was_asked() -> None:
    kept = Kept()
    trace = begin(kept, TraceLevel.TIMESTAMPS)
    asked = request("outer")
    trace.started(asked.model_name, asked.model_version, asked.id)
    child = trace.child()
    answer(child, request("inner", "step"))
    del child
    trace.responded(InferResponse(), True)
    del trace

    models = [entry for entry in entries(kept.traces[0]) if "model_name" in entry]
    assert models == [
        {"id": 2, "model_name": "step", "model_version": 1, "request_id": "inner", "parent_id": 1},
        {"id": 1, "model_name": "m", "model_version": 1, "request_id": "outer"},
    ]
    assert "2 INFER_RESPONSE_COMPLETE" not in words(kept.traces[0])


def test_a_request_that_was_refused_shows_how_far_it_came() -> None:
    kept = Kept()
    trace = begin(kept)
    trace.report_activity("HTTP_RECV_START")
    asked = InferRequest("m", {}, id="x")
    trace.started(asked.model_name, asked.model_version, asked.id)
    del trace

    assert words(kept.traces[0]) == ["1 HTTP_RECV_START", "1 model", "1 REQUEST_START"]
    assert entries(kept.traces[0])[1]["model_version"] == -1


def test_an_end_is_not_before_the_execution_of_a_request_that_answers_by_itself() -> None:
    kept = Kept()
    trace = begin(kept)
    asked = request()
    trace.started(asked.model_name, asked.model_version, asked.id)
    trace.responded(None, True)
    late = time.monotonic_ns() + 10**9
    trace.computed((late - 3, late - 2, late - 1, late))
    del trace

    assert kept.traces[0].spans[0].ended_ns == late


@pytest.mark.parametrize(("answers_once", "expected"), [(True, 1), (False, 3)])
def test_responses_are_stamped_as_triton_does_for_the_protocol(answers_once: bool, expected: int) -> None:
    kept = Kept()
    trace = begin(kept, answers_once=answers_once)
    for final in (False, False, True):
        trace.responded(InferResponse(), final)
    del trace

    assert words(kept.traces[0]).count("1 INFER_RESPONSE_COMPLETE") == expected


def test_a_plugin_reports_an_activity_of_its_own() -> None:
    kept = Kept()
    trace = begin(kept)
    trace.report_activity("TOKENS_READY", 12)
    del trace

    assert entries(kept.traces[0])[0] == {"id": 1, "timestamps": [{"name": "TOKENS_READY", "ns": 12}]}


@pytest.mark.parametrize(
    ("level", "has_stamps", "has_tensors"),
    [(TraceLevel.TIMESTAMPS, True, False), (TraceLevel.TENSORS, False, True), (ALL, True, True)],
)
def test_only_what_the_level_says_is_noted(level: TraceLevel, has_stamps: bool, has_tensors: bool) -> None:
    kept = Kept()
    answer(begin(kept, level), request(a=np.ones(1, np.int8)))
    found = entries(kept.traces[0])

    assert any("timestamps" in entry for entry in found) is has_stamps
    assert any("tensor" in entry for entry in found) is has_tensors
    assert any("model_name" in entry for entry in found)


@pytest.mark.parametrize(
    ("array", "datatype", "text"),
    [
        (
            np.array([0.1, 1 / 3, 1e-7, 123456789.0, np.inf, -0.0]),
            "FP64",
            "0.1,0.333333,1e-07,1.23457e+08,inf,-0",
        ),
        (np.array([0.1], np.float32), "FP32", "0.1"),
        (np.array([1.5], np.float16), "FP16", "1.5"),
        (np.array([0x3FC0], np.uint16), "BF16", "1.5"),
        (np.array([True, False]), "BOOL", "1,0"),
        (np.array([65, 200], np.uint8), "UINT8", "65,200"),
        (np.array([-3], np.int8), "INT8", "-3"),
        (np.array([2**64 - 1], np.uint64), "UINT64", "18446744073709551615"),
        (np.array([b"ab", b'c"d\xff'], object), "BYTES", '"ab","c"d\ufffd"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_elements_are_written_as_text(array: np.ndarray, datatype: str, text: str) -> None:
    kept = Kept()
    trace = begin(kept)
    asked = request()
    asked.inputs["a"] = Tensor.from_numpy("a", array, datatype)
    trace.queued(asked.model_version, asked.inputs.values())
    del trace

    (tensor,) = (entry["tensor"] for entry in entries(kept.traces[0]) if "tensor" in entry)
    assert tensor == {"name": "a", "data": text, "shape": str(array.size), "dtype": datatype}


def test_a_tensor_that_cannot_be_read_costs_its_values_only() -> None:
    class Cut:
        byte_size = 4

        def host_view(self) -> memoryview:
            raise InvalidArg("the region is gone")

    kept = Kept()
    trace = begin(kept)
    asked = request()
    asked.inputs["a"] = Tensor("a", "INT32", (1,), Cut())  # type: ignore[arg-type]
    trace.queued(asked.model_version, asked.inputs.values())
    del trace

    (tensor,) = (entry["tensor"] for entry in entries(kept.traces[0]) if "tensor" in entry)
    assert tensor == {"name": "a", "data": "", "shape": "1", "dtype": "INT32"}


def test_a_tensor_is_as_it_was_when_it_was_noted() -> None:
    array = np.array([1, 2], np.int32)
    kept = Kept()
    trace = begin(kept)
    trace.queued("1", request(a=array).inputs.values())
    array[:] = 9
    del trace

    (tensor,) = (entry["tensor"] for entry in entries(kept.traces[0]) if "tensor" in entry)
    assert tensor["data"] == "1,2"  # type: ignore[index]


def test_a_request_id_that_is_no_text_is_written_all_the_same() -> None:
    kept = Kept()
    answer(begin(kept), request("half \ud800"))

    assert [entry["request_id"] for entry in entries(kept.traces[0]) if "model_name" in entry] == [
        "half \ud800"
    ]


def test_a_trace_gives_models_the_context_of_their_own_span() -> None:
    kept = Kept()
    trace = begin(kept, context=TraceContext("a" * 32, "b" * 16, "v=1"))
    child = trace.child()
    contexts = [json.loads(one.context or "") for one in (trace, child)]
    del trace, child

    spans = kept.traces[0].spans
    assert [context["traceparent"] for context in contexts] == [
        f"00-{'a' * 32}-{span.span_id}-01" for span in spans
    ]
    assert contexts[0]["tracestate"] == "v=1"
    assert begin(Kept()).context is None


def test_a_request_with_responses_for_days_is_noted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonpy.tracing.trace._MOST_STAMPS", 5)
    monkeypatch.setattr("tritonpy.tracing.trace._MOST_TENSOR_BYTES", 1024 + 1000)
    kept = Kept()
    trace = begin(kept)
    for _ in range(10):
        trace.responded(InferResponse().add("a", np.zeros(300, np.uint8)), False)
    trace.responded(None, True)
    del trace

    (span,) = kept.traces[0].spans
    assert (len(span.stamps), len(span.tensors), span.ended_ns > 0) == (5, 3, True)
    assert kept.traces[0].byte_size == 1024 + 900 + 500


def test_a_backend_notes_its_own_steps_in_the_trace_of_a_request() -> None:
    kept = Kept()
    asked = InferRequest("m", {})
    assert asked.trace is None

    asked.ticket.trace = begin(kept)
    asked.trace.report_activity("MY_STEP", 7)
    del asked

    assert kept.traces[0].spans[0].stamps == [("MY_STEP", 7)]


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
