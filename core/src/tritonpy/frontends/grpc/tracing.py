"""Tracing over gRPC: traces of requests, and the trace extension's `TraceSetting`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from tritonpy import protos
from tritonpy.errors import InvalidArg
from tritonpy.frontends.grpc.forwarding import Metadata
from tritonpy.frontends.trace_settings import TraceSettings
from tritonpy.request_trace import RequestTrace
from tritonpy.tracing.trace import Trace
from tritonpy.tracing.tracing import Tracing

WhenDone = Callable[[Any], None]
"""Has a function called when a call is over: `ServicerContext.add_done_callback`. Any: it is called with the
context."""


def begin_trace(tracing: Tracing, metadata: Metadata, model: str, arrival_ns: int) -> Trace | None:
    """The trace of a request; None for no trace.

    Args:
        tracing: says whether it is traced.
        metadata: of its call.
        model: that it is for.
        arrival_ns: when its message came.
    """
    found: dict[str, str] = {}
    if tracing.takes_context:
        for key, value in metadata:
            if key in ("traceparent", "tracestate") and isinstance(value, str):
                found.setdefault(key, value)
    trace = tracing.begin(model, found.get("traceparent"), found.get("tracestate"), answers_once=True)
    if trace is not None:
        trace.report_activity("GRPC_WAITREAD_START", arrival_ns)
        trace.report_activity("GRPC_WAITREAD_END", time.monotonic_ns())
    return trace


def note_sending(trace: RequestTrace, when_done: WhenDone) -> None:
    """The answer of a call is handed over now, and has left when the call is over."""
    trace.report_activity("GRPC_SEND_START")
    when_done(_Leaving(trace))


class _Leaving:
    """An answer on its way. grpcio keeps it until the garbage collector runs, so it lets go of the trace."""

    __slots__ = ("_trace",)

    def __init__(self, trace: RequestTrace) -> None:
        self._trace: RequestTrace | None = trace

    def __call__(self, _: object) -> None:
        """The call is over."""
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.report_activity("GRPC_SEND_END")


class TracedMessage(bytes):
    """A message of a stream whose request is traced.

    Attributes:
        trace: of the request.
    """

    trace: RequestTrace

    @classmethod
    def of(cls, message: bytes, trace: RequestTrace) -> TracedMessage:
        """A message together with the trace of its request."""
        traced = cls(message)
        traced.trace = trace
        return traced

    async def leave(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Be written."""
        self.trace.report_activity("GRPC_SEND_START")
        await write(bytes(self))
        self.trace.report_activity("GRPC_SEND_END")


class TraceCalls:
    """Answers `TraceSetting`.

    Args:
        settings: shows and changes them.
    """

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings

    def trace_setting(self, request: protos.TraceSettingRequest) -> Message:
        """Change the settings that the request names, and show all.

        Raises:
            TritonError: there is no such model, or a setting is wrong.
        """
        response = protos.TraceSettingResponse()
        model = request.model_name
        if request.settings:
            shown = self._settings.change(request.settings, _MessageReader(), model)
        else:
            shown = self._settings.show(model)
        for name, value in shown:
            response.settings[name].value.extend((value,) if isinstance(value, str) else value)
        return response


class _MessageReader:
    """Satisfies `TraceSettingReader`; the codes and words are Triton's."""

    separator = " "

    def levels(self, value: protos.TraceSettingRequest.SettingValue) -> Sequence[str] | None:
        return list(value.value) or None

    def text(self, name: str, value: protos.TraceSettingRequest.SettingValue) -> str | None:
        if not value.value:
            return None
        if len(value.value) > 1:
            raise InvalidArg(f"expect only 1 value for '{name}'")
        text: str = value.value[0]
        return text
