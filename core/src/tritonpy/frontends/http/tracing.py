"""Tracing over HTTP: traces of requests, and the trace extension with its paths `trace/setting`."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.errors import Internal
from tritonpy.frontends.http.codec.json_body import Json, parse_json
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.infer import Body
from tritonpy.frontends.trace_settings import TraceSettings
from tritonpy.tracing.trace import Trace
from tritonpy.tracing.tracing import Shown, Tracing


def begin_trace(tracing: Tracing, connection: HttpConnection, model: str, arrival_ns: int) -> Trace | None:
    """The trace of a connection's current request, which the connection goes on with; None for no trace.

    Args:
        tracing: says whether it is traced.
        connection: has received it.
        model: that it is for.
        arrival_ns: when it was complete.
    """
    request = connection.current
    if request is None:  # its client is gone already
        return None
    parent = state = None
    if tracing.takes_context:
        parent, state = (_header(request.headers.get(name)) for name in (b"traceparent", b"tracestate"))
    trace = tracing.begin(model, parent, state)
    if trace is not None:
        trace.report_activity("HTTP_RECV_START", request.begun_ns or arrival_ns)
        trace.report_activity("HTTP_RECV_END", arrival_ns)
        connection.follow(trace)
    return trace


def _header(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


class TraceCalls:
    """Answers both methods of both paths.

    Args:
        settings: shows and changes them.
    """

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings

    def show(self, model: str = "") -> Json:
        """The settings of a model, or of the server."""
        return _json(self._settings.show(model))

    def change(self, body: Body, model: str = "") -> Json:
        """Change settings, and show all; a body that is no object changes nothing, as in Triton.

        Raises:
            TritonError: the body is not JSON, or a setting is wrong.
        """
        document = parse_json(body)
        wanted = document if isinstance(document, dict) else {}
        return _json(self._settings.change(wanted, _JsonReader(), model))


def _json(shown: Shown) -> Json:
    return {name: value if isinstance(value, str) else list(value) for name, value in shown}


class _JsonReader:
    """Satisfies `TraceSettingReader`; the codes and words are Triton's."""

    separator = ""

    def levels(self, value: Json) -> Sequence[str] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise Internal("attempt to access JSON non-array as array")
        return [_text(element) for element in value]

    def text(self, name: str, value: Json) -> str | None:
        return None if value is None else _text(value)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise Internal("attempt to access JSON non-string as string")
    return value
