"""Servers that trace, of ours and real ones."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import command_options, local_options
from .asking import MODELS, Endpoint

Start = Callable[..., Endpoint]


def read_words(words: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    return command_options("--model-repository=m", *(f"--trace-config={word}" for word in words)).trace_config


@pytest.fixture(scope="module")
def ours() -> Iterator[Start]:
    """Start one of our servers with words of `--trace-config`; all end with the module."""
    servers: list[Server] = []

    def start(*words: str) -> Endpoint:
        options = local_options(MODELS, allow_metrics=False, trace_config=read_words(words))
        server = Server(options)
        server.start()
        servers.append(server)
        return Endpoint(server.http_port, server.grpc_port)

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def real(real_triton: Callable[..., dict[str, int]]) -> Start:
    """Start a real server with words of `--trace-config`."""

    def start(*words: str) -> Endpoint:
        ports = real_triton(MODELS, *(f"--trace-config={word}" for word in words))
        return Endpoint(ports["http"], ports["grpc"])

    return start


class Collector:
    """Takes spans over OTLP/HTTP, as protobuf or JSON.

    Attributes:
        url: where.
        resources: attributes of those who sent.
        spans: what was sent, with hexadecimal ids.
    """

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self._arrived = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(body, is_json="json" in self.headers.get("Content-Type", ""))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def _take(self, body: bytes, *, is_json: bool) -> None:
        if is_json:
            document = json.loads(body)
        else:
            from google.protobuf import json_format
            from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

            message = ExportTraceServiceRequest.FromString(body)
            document = json_format.MessageToDict(message, use_integers_for_enums=True)
        with self._arrived:
            for sent in document["resourceSpans"]:
                self.resources.append(_attributes(sent["resource"]))
                for scope in sent["scopeSpans"]:
                    self.spans += [_span(span, scope["scope"]["name"]) for span in scope["spans"]]
            self._arrived.notify_all()

    def wait_for(self, is_there: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """All spans, as soon as they are what is wanted."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: is_there(self.spans), DEADLINE_S), self.spans
            return list(self.spans)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in holder.get("attributes", ())}


def _span(span: dict[str, Any], scope: str) -> dict[str, Any]:
    import base64

    def as_hex(id: str) -> str:
        is_hex = len(id) in (16, 32) and not set(id) - set("0123456789abcdef")
        return id if is_hex else base64.b64decode(id).hex()

    return {
        "scope": scope,
        "name": span["name"],
        "kind": span["kind"],
        "trace": as_hex(span["traceId"]),
        "id": as_hex(span["spanId"]),
        "parent": as_hex(span["parentSpanId"]) if span.get("parentSpanId") else "",
        "state": span.get("traceState", ""),
        "attributes": _attributes(span),
        "events": [(event["name"], int(event["timeUnixNano"])) for event in span.get("events", ())],
        "start": int(span["startTimeUnixNano"]),
        "end": int(span["endTimeUnixNano"]),
        "status": span.get("status", {}),
    }


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.proto")
    collector = Collector()
    yield collector
    collector.close()


def wait_for_files(pattern: Path, count: int) -> list[Path]:
    """The files whose names begin so and end in a number, by it, once there are as many."""

    def found() -> list[Path]:
        return [path for path in pattern.parent.glob(f"{pattern.name}.*") if path.suffix[1:].isdigit()]

    until(lambda: len(found()) >= count, found)
    return sorted(found(), key=lambda path: int(path.suffix[1:]))
