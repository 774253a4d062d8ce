"""Spans of the router: a client, the router and its replicas have one trace, over both protocols."""

from __future__ import annotations

import json
import queue
import re
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_router import route_cli
from tritonpy_router.membership import StaticMembership
from tritonpy_router.options import RouterOptions
from tritonpy_sdk.testing import DEADLINE_S, until
from tritonpy_sdk.testing.span_collector import SpanCollector

from .conftest import BODY, RouterThread, asked, local_ports, place_of
from .replicas import fake, grpc_port_that_ends

pytest.importorskip("opentelemetry.sdk")

Make = Callable[..., Any]
Span = dict[str, Any]
CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
STATUS = {"http": "http.response.status_code", "grpc": "rpc.grpc.status_code"}
ROUTER, SERVER = "tritonpy-router", "triton-server"
PAGE = (Path(__file__).parents[4] / "docs/how-to/route-to-several-servers.md").read_text()
SPAN = "b7ad6b7169203331"


def words(collector: SpanCollector, rate: int) -> tuple[tuple[str, str, str], ...]:
    return (
        ("", "mode", "opentelemetry"),
        ("", "level", "TIMESTAMPS"),
        ("", "rate", str(rate)),
        ("opentelemetry", "url", collector.url),
        ("opentelemetry", "bsp_schedule_delay", "20"),
    )


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    with closing(SpanCollector()) as made:
        yield made


@pytest.fixture(scope="module")
def traced(models: Path, collector: SpanCollector) -> Iterator[tuple[RouterThread, list[Server]]]:
    """A router that traces every request, before two servers that trace what it does."""
    with ExitStack() as stack:
        ports = local_ports(
            model_control_mode="explicit",
            load_models=("*",),
            exit_timeout_s=0,
            trace_config=words(collector, 0),
        )
        servers = [stack.enter_context(Server(ServerOptions((str(models),), **ports))) for _ in range(2)]
        places = [place_of(name, server) for name, server in zip("ab", servers, strict=True)]
        options = RouterOptions(
            ports=ServerOptions((), **local_ports(trace_config=words(collector, 1))),
            probe_interval_s=0.02,
            exit_timeout_s=0,
        )
        router = RouterThread(options, StaticMembership(places))
        router.start()
        stack.callback(router.stop)
        router.wait_until_ready(2)
        yield router, servers


@pytest.fixture
def router(traced: tuple[RouterThread, list[Server]]) -> RouterThread:
    return traced[0]


@pytest.fixture
def trace() -> str:
    """The id of a trace of one test."""
    return secrets.token_hex(16)


def parent(trace: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{SPAN}-{flags}"}


def infer(address: str, protocol: str, model: str = "echo", rows: int = 1, **more: Any) -> str:
    """Ask; "OK", or the error."""
    kind = CLIENTS[protocol]
    with kind.InferenceServerClient(address) as client:
        tensor = kind.InferInput("INPUT0", [rows, 2], "FP32")
        tensor.set_data_from_numpy(np.ones((rows, 2), np.float32))
        try:
            client.infer(model, [tensor], **more)
        except InferenceServerException as exc:
            return str(exc)
        return "OK"


def address(router: RouterThread, protocol: str) -> str:
    found: str = getattr(router, protocol)
    return found


def of_trace(collector: SpanCollector, trace: str, count: int, *, is_routers: bool = False) -> list[Span]:
    """The spans of a trace, all or only the router's, by their start, once there are as many."""

    def belong(spans: list[Span]) -> list[Span]:
        of_all = [span for span in spans if span["trace"] == trace]
        return [span for span in of_all if span["scope"] == ROUTER] if is_routers else of_all

    spans = belong(collector.wait_for(lambda spans: len(belong(spans)) >= count))
    assert len(spans) == count
    return sorted(spans, key=lambda span: span["start"])


def latest(collector: SpanCollector, error: str) -> list[Span]:
    """The spans of the trace whose root has this in its error."""

    def roots(spans: list[Span]) -> list[Span]:
        return [
            span
            for span in spans
            if span["name"] == "RouteRequest" and error in span["status"].get("message", "")
        ]

    spans = collector.wait_for(lambda spans: bool(roots(spans)))
    [root] = roots(spans)
    return [span for span in spans if span["trace"] == root["trace"]]


def tree(spans: list[Span], parent: str) -> list[Any]:
    """Names of spans with those that belong to them."""
    return sorted([span["name"], tree(spans, span["id"])] for span in spans if span["parent"] == parent)


IN_SERVER = ["InferRequest", [["echo", [["compute", []]]]]]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_client_the_router_and_a_replica_have_one_trace(
    router: RouterThread, collector: SpanCollector, trace: str, protocol: str
) -> None:
    headers = {**parent(trace), "tracestate": "vendor=1"}

    assert infer(address(router, protocol), protocol, headers=headers, request_id="seven") == "OK"

    spans = of_trace(collector, trace, 6)
    assert tree(spans, SPAN) == [["RouteRequest", [["attempt", [IN_SERVER]], ["queue", []]]]]
    assert {span["state"] for span in spans} == {"vendor=1"}
    by_name = {span["name"]: span for span in spans}
    root, waiting, attempt = (by_name[name] for name in ("RouteRequest", "queue", "attempt"))
    assert [span["kind"] for span in (root, waiting, attempt)] == [2, 1, 3]  # server, internal, client
    assert {span["scope"] for span in (root, waiting, attempt)} == {ROUTER}
    assert [name for name, _ in root["events"]] == ["REQUEST_RECEIVED"]
    assert [name for name, _ in attempt["events"]] == ["REQUEST_SENT", "RESPONSE_START"]
    for span in (waiting, attempt):
        assert root["start"] <= span["start"] <= span["end"] <= root["end"]
        assert span["attributes"]["tritonpy.replica"] in ("a", "b")
    of_root = {"triton.model_name": "echo", "network.protocol.name": protocol, "tritonpy.attempt_count": "1"}
    assert of_root.items() <= root["attributes"].items()
    if protocol == "grpc":  # over HTTP it stands in the JSON, which is not read
        assert root["attributes"]["triton.request_id"] == "seven"
    good = {"http": "200", "grpc": "0"}[protocol]
    assert [span["attributes"][STATUS[protocol]] for span in (root, attempt)] == [good, good]
    assert attempt["attributes"]["server.address"] == "127.0.0.1"
    assert not any(span["status"] for span in spans)


def test_events_of_a_streamed_answer_are_one_request(
    router: RouterThread, collector: SpanCollector, trace: str
) -> None:
    body = json.dumps({"IN": [1, 2, 3], "DELAY": [0, 0, 0], "WAIT": 0}).encode()

    status, _, answer = asked(router.http, "/v2/models/many/generate_stream", body, parent(trace))

    assert (status, answer.count(b"data: ")) == (200, 3)
    spans = of_trace(collector, trace, 6)
    in_server = ["InferRequest", [["many", [["compute", []]]]]]
    assert tree(spans, SPAN) == [["RouteRequest", [["attempt", [in_server]], ["queue", []]]]]


def test_a_stream_has_an_attempt_for_each_replica_and_its_requests_below(
    router: RouterThread, collector: SpanCollector, trace: str
) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    tensor = tritonclient.grpc.InferInput("INPUT0", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
    with closing(tritonclient.grpc.InferenceServerClient(router.grpc)) as client:
        client.start_stream(lambda result, error: answers.put(error), headers=parent(trace))
        for model in ("echo", "echo", "nosuch", "echo"):
            client.async_stream_infer(model, [tensor])
        errors = [answers.get(timeout=DEADLINE_S) for _ in range(4)]
        client.stop_stream()

    assert len([error for error in errors if error is not None]) == 1
    spans = of_trace(collector, trace, 1 + 1 + 2 + 3 * 3)
    attempt = ["attempt", [IN_SERVER] * 3]
    assert tree(spans, SPAN) == [["RouteRequest", [attempt, ["queue", []], ["queue", []]]]]
    [counted] = [span for span in spans if span["name"] == "attempt"]
    assert counted["attributes"]["tritonpy.request_count"] == "3"
    refused = {span["attributes"]["triton.model_name"]: span for span in spans if span["name"] == "queue"}
    assert not refused["echo"]["status"]
    assert "'nosuch' is not found" in refused["nosuch"]["status"]["message"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_that_is_sent_again_shows_both_attempts(
    make_router: Make, make_server: Make, collector: SpanCollector, trace: str, protocol: str
) -> None:
    server = make_server("echo", trace_config=words(collector, 0))
    with (
        fake({"retry_on_replica_loss": {"string_value": "true"}}) as replica,
        grpc_port_that_ends(b"echo") as grpc_port,
    ):
        router = make_router(
            server,
            places=[replica.place._replace(grpc_port=grpc_port)],
            policy="round-robin",
            ports={"trace_config": words(collector, 0)},
        )
        traces = [secrets.token_hex(16) for _ in range(2)]
        for each in traces:
            assert infer(address(router, protocol), protocol, headers=parent(each)) == "OK"

        def is_retried(spans: list[Span]) -> bool:
            names = [(span["trace"], span["name"]) for span in spans if span["trace"] in traces]
            return sorted(names.count((each, "attempt")) for each in traces) == [1, 2] and all(
                (each, "compute") in names for each in traces
            )

        spans = [span for span in collector.wait_for(is_retried) if span["trace"] in traces]

    [retried] = [each for each in traces if len([span for span in spans if span["trace"] == each]) == 8]
    spans = sorted((span for span in spans if span["trace"] == retried), key=lambda span: span["start"])
    assert tree(spans, SPAN) == [
        ["RouteRequest", [["attempt", []], ["attempt", [IN_SERVER]], ["queue", []], ["queue", []]]]
    ]
    lost, good = (span for span in spans if span["name"] == "attempt")
    [root] = (span for span in spans if span["name"] == "RouteRequest")
    assert (lost["status"]["code"], good["status"], root["status"]) == (2, {}, {})
    text = {"http": "it closed the connection", "grpc": "replica 'fake' was lost before it answered"}
    assert text[protocol] in lost["status"]["message"]
    assert [span["attributes"]["tritonpy.replica"] for span in (lost, good)] == ["fake", "a"]
    assert [span["attributes"]["tritonpy.attempt"] for span in (lost, good)] == ["1", "2"]
    assert (root["attributes"]["tritonpy.attempt_count"], root["attributes"]["tritonpy.replica"]) == (
        "2",
        "a",
    )


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_that_its_client_does_not_trace_leaves_no_span(
    router: RouterThread, collector: SpanCollector, trace: str, protocol: str
) -> None:
    after = secrets.token_hex(16)

    assert infer(address(router, protocol), protocol, headers=parent(trace, "00")) == "OK"
    with CLIENTS[protocol].InferenceServerClient(address(router, protocol)) as client:
        client.get_model_metadata("echo", headers=parent(trace))  # which is no inference
    assert infer(address(router, protocol), protocol, headers=parent(after)) == "OK"

    of_trace(collector, after, 6)
    assert not [span for span in collector.spans if span["trace"] == trace]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_traceparent_that_cannot_be_read_is_ignored(
    router: RouterThread, collector: SpanCollector, trace: str, protocol: str
) -> None:
    """The router's spans have no parent; those of the replica, which would ignore it, are its children."""
    name = f"nosuch-{trace}"
    headers = {"traceparent": f"00-{trace}-{'0' * 16}-01", "tracestate": "vendor=1"}

    assert name in infer(address(router, protocol), protocol, name, headers=headers)
    assert infer(address(router, protocol), protocol, headers=headers) == "OK"

    root = next(span for span in latest(collector, name) if span["name"] == "RouteRequest")
    assert (root["parent"], root["state"], root["trace"] != trace) == ("", "", True)


HEADERS = [b"traceparent: 00-%b-b7ad6b7169203331-00" % (b"a" * 32), b"tracestate: vendor=1"]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BROKEN = [b"traceparent: nonsense", b"tracestate: vendor=1"]


def sent_on(router: RouterThread, replica: Any, lines: list[bytes]) -> list[bytes]:
    """What a replica gets of a request's trace headers."""
    headers = dict(line.decode().split(": ") for line in lines)
    asked(router.http, "/v2/models/echo/infer", BODY, headers)
    return [line for line in replica.headers if line.startswith(b"trace")]


def test_what_is_not_traced_is_passed_on_as_it_came_and_what_is_has_a_parent_of_the_router(
    make_router: Make, collector: SpanCollector
) -> None:
    with fake(before_head=ANSWER) as replica:
        off = make_router(places=[replica.place])
        rare = make_router(places=[replica.place], ports={"trace_config": words(collector, 0)})
        always = make_router(places=[replica.place], ports={"trace_config": words(collector, 1)})

        assert sent_on(off, replica, HEADERS) == HEADERS
        assert sent_on(off, replica, BROKEN) == BROKEN
        assert sent_on(rare, replica, HEADERS) == HEADERS
        assert sent_on(rare, replica, BROKEN) == BROKEN
        assert sent_on(always, replica, HEADERS) == HEADERS
        [new] = sent_on(always, replica, BROKEN)
        [also_new] = sent_on(always, replica, [])
        going_on = sent_on(always, replica, [HEADERS[0][:-1] + b"1", HEADERS[1]])

    made = {line[len(b"traceparent: ") :].decode() for line in (new, also_new, going_on[0])}
    by_parent = {f"00-{span['trace']}-{span['id']}-01": span for span in attempts(collector, made)}
    assert set(by_parent) == made
    assert going_on[0].startswith(HEADERS[0][:45])
    assert going_on[1:] == HEADERS[1:]


def attempts(collector: SpanCollector, parents: set[str]) -> list[Span]:
    ids = {each.split("-")[2] for each in parents}

    def found(spans: list[Span]) -> list[Span]:
        return [span for span in spans if span["id"] in ids and span["name"] == "attempt"]

    return found(collector.wait_for(lambda spans: len(found(spans)) == len(ids)))


@pytest.mark.parametrize(("protocol", "status"), [("http", "404"), ("grpc", "5")])
def test_a_request_that_no_replica_takes_says_why(
    router: RouterThread, collector: SpanCollector, trace: str, protocol: str, status: str
) -> None:
    infer(address(router, protocol), protocol, "nosuch", headers=parent(trace))

    spans = of_trace(collector, trace, 2)
    assert tree(spans, SPAN) == [["RouteRequest", [["queue", []]]]]
    root = spans[0]
    assert root["attributes"][STATUS[protocol]] == status
    for span in spans:
        assert span["status"]["code"] == 2
        assert "Request for unknown model: 'nosuch' is not found" in span["status"]["message"]


@pytest.mark.parametrize(("protocol", "status"), [("http", "400"), ("grpc", "3")])
def test_an_error_of_a_replica_is_that_of_the_attempt_and_of_the_request(
    router: RouterThread, collector: SpanCollector, trace: str, protocol: str, status: str
) -> None:
    assert infer(address(router, protocol), protocol, rows=9, headers=parent(trace)) != "OK"

    spans = of_trace(collector, trace, 3, is_routers=True)
    assert tree(spans, SPAN) == [["RouteRequest", [["attempt", []], ["queue", []]]]]
    failed = [span for span in spans if span["name"] != "queue"]
    assert [span["status"]["code"] for span in failed] == [2, 2]
    assert [span["attributes"][STATUS[protocol]] for span in failed] == [status, status]
    text = {"http": "has answered 400", "grpc": "batch-size must be <= 8"}[protocol]
    assert all(text in span["status"]["message"] for span in failed)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_client_that_leaves_ends_its_spans(
    router: RouterThread, collector: SpanCollector, trace: str, protocol: str
) -> None:
    def is_under_way() -> bool:
        return router.call(lambda: sum(each.inflight for each in router.router.view)) == 1

    if protocol == "grpc":
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, 2], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
        with tritonclient.grpc.InferenceServerClient(router.grpc) as asking:
            call = asking.async_infer("held", [tensor], lambda result, error: None, headers=parent(trace))
            until(is_under_way)
            call.cancel()
    else:
        request = b"POST /v2/models/held/infer HTTP/1.1\r\nContent-Length: %d\r\ntraceparent: %b\r\n\r\n%b"
        header = parent(trace)["traceparent"].encode()
        with socket.create_connection(("127.0.0.1", router.router.http_port)) as client:
            client.sendall(request % (len(BODY), header, BODY))
            until(is_under_way)

    spans = of_trace(collector, trace, 3, is_routers=True)
    for span in spans:
        if span["name"] != "queue":
            assert span["status"]["code"] == 2
            assert "the client was gone" in span["status"]["message"]


def test_the_page_says_what_there_is(
    make_router: Make, make_server: Make, collector: SpanCollector, trace: str
) -> None:
    section = PAGE.partition("## Traces\n")[2].partition("\n## ")[0]
    [command] = re.findall(r"^\$ corectl route (.*)$", section.replace("\\\n    ", ""), re.MULTILINE)
    flags = [word.replace("http://localhost:4318/v1/traces", collector.url) for word in shlex.split(command)]
    flags.append("--trace-config=opentelemetry,bsp_schedule_delay=20")
    with route_cli.route.make_context("route", flags) as context:
        words = route_cli.router_options(context, context.params).ports.trace_config
    router = make_router(make_server("echo"), ports={"trace_config": words})

    assert infer(router.grpc, "grpc", headers=parent(trace), request_id="a", model_version="1") == "OK"

    spans = of_trace(collector, trace, 3)
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", section, re.MULTILINE)
    assert {name: re.findall(r"`(\w+)`", events) for name, events in rows} == {
        span["name"]: [name for name, _ in span["events"]] for span in spans
    }
    named = set(re.findall(r"`((?:tritonpy|triton|http|rpc)\.[\w.]+)`", section))
    there = {name for span in spans for name in span["attributes"]}
    assert named - there == {"tritonpy.request_count", "http.response.status_code"}
    assert "tritonpy-router" in {resource["service.name"] for resource in collector.resources}
