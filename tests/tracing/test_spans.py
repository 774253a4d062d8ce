"""Traces as spans for a collector, which the test is: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonpy.tracing.described import DescribedSpan, SpanEvent
from tritonpy.tracing.output import TraceOutput, collector_destination
from tritonpy.tracing.settings import CollectorSettings, TraceOrigin
from tritonpy.tracing.trace import FinishedTrace, TraceContext
from tritonpy_sdk.testing.span_collector import SpanCollector

from ..servers import OURS_AND_REAL
from .asking import Endpoint

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}"
COMPUTE = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
REQUEST = ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
HTTP = ["HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END"]
GRPC = [
    *("GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "INFER_RESPONSE_COMPLETE"),
    *("GRPC_SEND_START", "GRPC_SEND_END"),
]

Span = dict[str, Any]
Tree = tuple[str, list[Any]]


def words(collector: SpanCollector) -> list[str]:
    return [
        "mode=opentelemetry",
        f"opentelemetry,url={collector.url}",
        "opentelemetry,resource=service.name=shop",
        "opentelemetry,resource=a=b=c",
        "opentelemetry,bsp_schedule_delay=50",
        "level=TIMESTAMPS",
    ]


@pytest.fixture(params=OURS_AND_REAL, scope="module")
def start(request: pytest.FixtureRequest) -> Callable[..., Endpoint]:
    start: Callable[..., Endpoint] = request.getfixturevalue(request.param)
    return start


@pytest.fixture(scope="module")
def everything(start: Callable[..., Endpoint]) -> Iterator[tuple[SpanCollector, list[Span]]]:
    """The spans of one request of each kind over both protocols."""
    with closing(SpanCollector()) as collector:
        server = start(*words(collector), "rate=1")
        server.ask_everything_over_http()
        server.ask_everything_over_grpc()
        yield collector, collector.wait_for(lambda spans: len(spans) >= count(EXPECTED))


def named(name: str, events: list[str]) -> str:
    """A span; its sends behind all responses, as how they mix is chance when several responses come."""
    return f"{name}: {' '.join(sorted(events, key=lambda event: '_SEND_' in event))}"


def tree(spans: list[Span], parent: str) -> list[Tree]:
    """Names of spans and of their events, with those that belong to them, by their names."""
    return sorted(
        (named(span["name"], [name for name, _ in span["events"]]), tree(spans, span["id"]))
        for span in spans
        if span["parent"] == parent
    )


def run(model: str, *more: Tree, computes: bool = True) -> Tree:
    """The tree of one model."""
    compute = [(f"compute: {' '.join(COMPUTE)}", [])] if computes else []
    return f"{model}: {' '.join(REQUEST)}", sorted([*compute, *more])


def client(events: list[str], *below: Tree) -> Tree:
    return named("InferRequest", events), list(below)


def count(trees: list[Tree]) -> int:
    """How many spans they have."""
    return sum(1 + count(below) for _, below in trees)


STREAMED = [*HTTP, *HTTP[2:], *HTTP[2:], "INFER_RESPONSE_COMPLETE"]
CALLER = run("caller", run("echo"))
EXPECTED = [
    client(HTTP, run("echo")),
    client(HTTP, run("failing")),
    client(HTTP, CALLER),
    client(HTTP, run("chain", run("echo"), CALLER, computes=False)),
    client(HTTP, run("echo")),
    client(STREAMED, run("talker")),
    client(GRPC, run("echo")),
    client(GRPC, run("failing")),
    client(GRPC, CALLER),
    client([*GRPC, *GRPC[3:] * 3], run("talker")),
    client(GRPC, run("echo")),
]


def test_spans_are_tritons(everything: tuple[SpanCollector, list[Span]]) -> None:
    _, spans = everything

    assert tree(spans, "") == sorted(EXPECTED)


def test_traces_are_apart_and_spans_are_servers(everything: tuple[SpanCollector, list[Span]]) -> None:
    _, spans = everything
    by_id = {span["id"]: span for span in spans}

    assert len({span["trace"] for span in spans}) == len(EXPECTED)
    assert {(span["kind"], span["scope"], span["state"]) for span in spans} == {(2, "triton-server", "")}
    for span in spans:
        if span["parent"]:
            assert span["trace"] == by_id[span["parent"]]["trace"]


def test_spans_of_models_say_which_request_it_was(everything: tuple[SpanCollector, list[Span]]) -> None:
    _, spans = everything
    of_models = [span for span in spans if span["name"] not in ("InferRequest", "compute")]
    ids = {span["id"]: span["attributes"].get("triton.trace_id", "0") for span in spans}

    for span in of_models:
        assert span["attributes"]["triton.model_name"] == span["name"]
        assert str(span["attributes"]["triton.model_version"]) == "1"
        assert str(span["attributes"]["triton.trace_parent_id"]) == str(ids[span["parent"]])
    assert {span["attributes"]["triton.request_id"] for span in of_models} == {
        *("echo", "failing", "caller", "traced", "chain", "generate", "events", "streamed")
    }
    assert all(not span["attributes"] for span in spans if span not in of_models)


def test_times_are_those_of_the_wall_clock(everything: tuple[SpanCollector, list[Span]]) -> None:
    _, spans = everything
    now = time.time_ns()

    for span in spans:
        assert now - 600e9 < span["start"] <= span["end"] < now + 10e9
        if span["name"] != "InferRequest":  # of a real server it begins after its first event
            assert all(span["start"] <= when <= span["end"] for _, when in span["events"])
            assert all(before <= after for (_, before), (_, after) in pairwise(span["events"]))


def test_the_resource_is_what_was_asked_for(everything: tuple[SpanCollector, list[Span]]) -> None:
    collector, _ = everything

    assert collector.resources
    for resource in collector.resources:
        assert (resource["service.name"], resource["a"]) == ("shop", "b=c")
        assert resource["telemetry.sdk.name"] == "opentelemetry"


def test_settings_of_the_collector_are_shown(start: Callable[..., Endpoint]) -> None:
    server = start("mode=opentelemetry", "opentelemetry,url=http://127.0.0.1:9/v1/traces", "level=OFF")
    status, text = server.send("GET", "/v2/trace/setting")

    assert (status, json.loads(text)) == (
        200,
        {
            "trace_level": ["OFF"],
            "trace_rate": "1000",
            "trace_count": "-1",
            "trace_mode": "opentelemetry",
            "url": "http://127.0.0.1:9/v1/traces",
            "bsp_max_export_batch_size": "512",
            "bsp_schedule_delay": "5000",
            "bsp_max_queue_size": "2048",
        },
    )


def context_of(answer: Any) -> dict[str, str]:
    (output,) = (output for output in answer["outputs"] if output["name"] == "CONTEXT")
    context: dict[str, str] = json.loads(output["data"][0])
    return context


def test_a_trace_goes_on_from_the_client_through_the_server_into_models(
    start: Callable[..., Endpoint],
) -> None:
    with closing(SpanCollector()) as collector:
        server = start(*words(collector), "rate=0")
        assert server.infer("echo")[0] == 200  # no context, and a rate of 0: no trace
        headers = {"traceparent": f"{PARENT}-01", "tracestate": "vendor=1"}
        status, answer = server.infer("caller", "with context", headers=headers)
        assert status == 200
        spans = collector.wait_for(lambda spans: len(spans) >= count([client(HTTP, CALLER)]))

    (first,) = (span for span in spans if span["name"] == "InferRequest")
    (of_model,) = (span for span in spans if span["name"] == "caller")
    assert tree(spans, SPAN) == [client(HTTP, CALLER)]
    assert {(span["trace"], span["state"]) for span in spans} == {(TRACE, "vendor=1")}
    assert (first["parent"], of_model["parent"]) == (SPAN, first["id"])
    assert context_of(answer) == {
        "traceparent": f"00-{TRACE}-{of_model['id']}-01",
        "tracestate": "vendor=1",
    }


def test_a_trace_goes_on_over_grpc(start: Callable[..., Endpoint]) -> None:
    given = grpcclient.InferInput("INPUT0", [2], "FP32")
    given.set_data_from_numpy(np.ones(2, np.float32))
    with closing(SpanCollector()) as collector:
        server = start(*words(collector), "rate=0")
        with closing(grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}")) as asking:
            asking.infer("echo", [given], headers={"traceparent": f"{PARENT}-01"})
            asking.infer("echo", [given])
        spans = collector.wait_for(lambda spans: len(spans) >= count([client(GRPC, run("echo"))]))

    assert tree(spans, SPAN) == [client(GRPC, run("echo"))]
    assert {span["trace"] for span in spans} == {TRACE}


# Ours alone.


def test_a_stream_of_grpc_goes_on_with_the_trace_of_its_metadata(ours: Callable[..., Endpoint]) -> None:
    given = grpcclient.InferInput("INPUT0", [2], "FP32")
    given.set_data_from_numpy(np.ones(2, np.float32))
    with closing(SpanCollector()) as collector:
        server = ours(*words(collector), "rate=0")
        with closing(grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}")) as asking:
            asking.start_stream(lambda result, error: None, headers={"traceparent": f"{PARENT}-01"})
            asking.async_stream_infer("echo", [given])
            asking.async_stream_infer("echo", [given])
            asking.stop_stream()
        spans = collector.wait_for(lambda spans: len(spans) >= 6)

    assert tree(spans, SPAN) == [client(GRPC, run("echo"))] * 2


def test_a_context_that_is_not_sampled_is_gone_on_with_when_it_is_its_turn(
    ours: Callable[..., Endpoint],
) -> None:
    with closing(SpanCollector()) as collector:
        server = ours(*words(collector), "rate=2")
        for _ in range(4):
            assert server.infer("echo", headers={"traceparent": f"{PARENT}-00"})[0] == 200
        spans = collector.wait_for(lambda spans: len(spans) >= 6)

    assert tree(spans, SPAN) == [client(HTTP, run("echo"))] * 2


def test_spans_of_any_shape_arrive_as_they_are_described() -> None:
    begun_ns = time.monotonic_ns()
    trace = FinishedTrace(None, TraceContext(TRACE, SPAN, "vendor=1"))
    trace.described += [
        DescribedSpan(
            "taken",
            "server",
            "1" * 16,
            SPAN,
            begun_ns,
            begun_ns + 2000,
            {"a": "b", "many": 3},
            [SpanEvent("moment", begun_ns + 1000, {"why": "so"})],
        ),
        DescribedSpan("made", "client", "2" * 16, "1" * 16, begun_ns, begun_ns + 1000, error="it was lost"),
    ]
    with closing(SpanCollector()) as collector:
        settings = CollectorSettings(collector.url, schedule_delay_ms=50)
        output = TraceOutput(collector_destination(settings, TraceOrigin("gate", "gatekeeper")))
        output.put(trace)
        taken, made = collector.wait_for(lambda spans: len(spans) == 2)
        output.close()

    assert collector.resources[0]["service.name"] == "gate"
    assert {(span["trace"], span["state"], span["scope"]) for span in (taken, made)} == {
        (TRACE, "vendor=1", "gatekeeper")
    }
    assert (taken["name"], taken["kind"], taken["parent"], taken["status"]) == ("taken", 2, SPAN, {})
    assert (taken["attributes"], [name for name, _ in taken["events"]]) == (
        {"a": "b", "many": "3"},
        ["moment"],
    )
    assert (taken["end"] - taken["start"], taken["events"][0][1] - taken["start"]) == (2000, 1000)
    assert (made["name"], made["kind"], made["parent"]) == ("made", 3, taken["id"])
    assert made["status"] == {"code": 2, "message": "it was lost"}


def test_a_span_of_a_request_that_failed_says_so(everything: tuple[SpanCollector, list[Span]]) -> None:
    _, spans = everything
    statuses = {(span["name"], span["status"].get("message", "")) for span in spans if span["status"]}

    assert statuses in ({("failing", "it fails")}, set())  # a real server says nothing


def test_what_waits_for_a_collector_is_sent_when_the_server_ends(
    corectl: Callable[..., Any], collector: SpanCollector
) -> None:
    from .asking import MODELS

    flags = [f"--trace-config={word}" for word in (*words(collector), "rate=1")]
    flags.append("--trace-config=opentelemetry,bsp_schedule_delay=600000")
    process = corectl(f"--model-repository={MODELS}", *flags)
    server = Endpoint(process.ports["HTTPService"], process.ports["GRPCInferenceService"])
    assert server.infer("echo", "last")[0] == 200

    assert process.stop() == 0
    assert tree(collector.spans, "") == [client(HTTP, run("echo"))]


@pytest.mark.stress
def test_a_server_without_a_collector_serves_and_says_what_is_wrong(corectl: Callable[..., Any]) -> None:
    from .asking import MODELS

    process = corectl(
        f"--model-repository={MODELS}",
        "--trace-config=mode=opentelemetry",
        "--trace-config=opentelemetry,url=http://127.0.0.1:9/v1/traces",
        "--trace-config=opentelemetry,bsp_schedule_delay=20",
        *("--trace-config=rate=1", "--trace-config=level=TIMESTAMPS"),
    )
    server = Endpoint(process.ports["HTTPService"], process.ports["GRPCInferenceService"])
    for _ in range(3):
        assert server.infer("echo")[0] == 200

    assert process.stop() == 0
    assert "while exporting span" in process.log or "Failed to export span" in process.log


def test_a_server_without_the_extra_says_what_to_install(tmp_path: Any) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError(name='opentelemetry')\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tritonpy.cli.main import main\n"
        "sys.exit(main(['serve', '--model-repository=m', '--trace-config=mode=opentelemetry']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert ended.returncode == 1
    assert "error: creating server: Invalid argument - trace mode 'opentelemetry' needs" in ended.stderr
    assert "pip install 'tritonpy[opentelemetry]'" in ended.stderr
