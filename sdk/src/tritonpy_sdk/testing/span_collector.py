"""A collector of OpenTelemetry in a test: takes spans over OTLP/HTTP, and keeps them."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tritonpy_sdk.testing.patience import DEADLINE_S


class SpanCollector:
    """Takes spans as protobuf, which needs what `tritonpy[opentelemetry]` installs, or JSON; on a thread.

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
                """Take spans."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(body, is_json="json" in self.headers.get("Content-Type", ""))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

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
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in holder.get("attributes", ())}


def _span(span: dict[str, Any], scope: str) -> dict[str, Any]:
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
