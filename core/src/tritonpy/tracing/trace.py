"""The trace of one client's request, and of the requests that models and ensembles make for it.

All that take part hold on to the trace: the request, its connection, requests made for it. When the last one
lets go, everything has happened that will, however it ended, and the trace is handed on. So no path through
the server can forget to end it.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tritonpy.errors import TritonError
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor
from tritonpy.tracing.described import DescribedSpan
from tritonpy.tracing.settings import TraceLevel

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST_STATE = 512  # the length that all parties must pass on; longer ones may be dropped

_ids = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a request belongs to.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: of the span that the request was made in, 16 digits; "" when it begins a trace.
        state: what other vendors want passed on; "" for nothing.
        is_sampled: the client traces the request.
    """

    trace_id: str
    span_id: str = ""
    state: str = ""
    is_sampled: bool = True

    def traceparent(self, span_id: str) -> str:
        """The header that goes on with this trace, which is recorded, from one of its spans."""
        return f"00-{self.trace_id}-{span_id}-01"

    def carried(self, span_id: str) -> str:
        """This trace, seen from one of its spans, as the JSON that OpenTelemetry's propagators read."""
        carrier = {"traceparent": self.traceparent(span_id)}
        if self.state:
            carrier["tracestate"] = self.state
        return json.dumps(carrier, separators=(",", ":"))


def read_context(traceparent: str | None, tracestate: str | None) -> TraceContext | None:
    """The context that headers bring; None when they bring none, or none that can be understood.

    Source: W3C Trace Context, "traceparent Header Field Values".
    """
    match = _TRACEPARENT.fullmatch(traceparent.strip()) if traceparent else None
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = tracestate.strip() if tracestate else ""
    if len(state) > _LONGEST_STATE or not state.isprintable():
        state = ""
    return TraceContext(trace_id, span_id, state, bool(int(flags, 16) & 1))


def new_context() -> TraceContext:
    """The context of a request that brings none."""
    return TraceContext(f"{_ids.randrange(1, 2**128):032x}")


def new_span_id() -> str:
    """An id for one span."""
    return f"{_ids.randrange(1, 2**64):016x}"


Stamp = tuple[str, int]
"""The name of an activity, and when it was, in nanoseconds of the monotonic clock."""

TENSOR_IN, TENSOR_OUT = "TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT"

_COMPUTING = ("COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
_SPAN_BYTE_SIZE = 1024
_STAMP_BYTE_SIZE = 100
_MOST_STAMPS = 100_000
_MOST_TENSOR_BYTES = 64 * 1024 * 1024
"""Limits per request, which may have responses for days: stamps, then values, are no longer noted."""


class TracedTensor:
    """A tensor at one moment: a copy, because the original's memory is used again.

    Attributes:
        activity: `TENSOR_QUEUE_INPUT` or `TENSOR_BACKEND_OUTPUT`.
        ns: when.
        name, datatype, shape: of the tensor.
        data: its wire form; b"" for one that cannot be read, such as a region that its client has cut.
    """

    __slots__ = ("activity", "data", "datatype", "name", "ns", "shape")

    def __init__(self, activity: str, ns: int, tensor: Tensor) -> None:
        self.activity = activity
        self.ns = ns
        self.name = tensor.name
        self.datatype = tensor.datatype
        self.shape = tuple(tensor.shape)
        try:
            self.data = bytes(tensor.wire())
        except TritonError:  # costs the trace its values, never the request
            self.data = b""


class Span:
    """Notes on one request to one model.

    Attributes:
        id: a number of its own.
        parent_id: of the span whose model made the request; 0 for the client's request.
        model_name, model_version: of the model; "" until it has been found.
        request_id: the client's, or the model's that made the request.
        stamps: activities, in the order in which they were noted.
        tensors: noted tensors.
        ended_ns: when the model was done with the request; 0 when it never began.
        error: the text of an error that answered it; "" for none.
        span_id: names the span outside of the server; "" in Triton's mode.
    """

    __slots__ = (
        "ended_ns",
        "error",
        "id",
        "model_name",
        "model_version",
        "parent_id",
        "request_id",
        "span_id",
        "stamps",
        "tensors",
    )

    def __init__(self, id: int, parent_id: int, span_id: str) -> None:
        self.id = id
        self.parent_id = parent_id
        self.model_name = ""
        self.model_version = ""
        self.request_id = ""
        self.stamps: list[Stamp] = []
        self.tensors: list[TracedTensor] = []
        self.ended_ns = 0
        self.error = ""
        self.span_id = span_id


class FinishedTrace:
    """A complete trace.

    Attributes:
        stream: where it belongs.
        spans: of requests to models, the client's first.
        described: all others; files do not have them.
        context: the trace it is a part of; None in Triton's mode.
        byte_size: what it weighs, roughly.
    """

    __slots__ = ("byte_size", "context", "described", "spans", "stream")

    def __init__(self, stream: object, context: TraceContext | None) -> None:
        self.stream = stream
        self.context = context
        self.spans: list[Span] = []
        self.described: list[DescribedSpan] = []
        self.byte_size = 0


class _Record:
    """Hands a trace on when its last holder is gone."""

    __slots__ = ("_put", "finished", "level", "new_id")

    def __init__(
        self,
        finished: FinishedTrace,
        level: TraceLevel,
        new_id: Callable[[], int],
        put: Callable[[FinishedTrace], None],
    ) -> None:
        self.finished = finished
        self.level = level
        self.new_id = new_id
        self._put = put

    def __del__(self) -> None:
        finished = self.finished
        finished.byte_size += sum(len(span.stamps) for span in finished.spans) * _STAMP_BYTE_SIZE
        self._put(finished)


class Trace:
    """One request, as it is traced; satisfies `ServerTrace`.

    Stamps may come from any thread; everything else happens on the loop.

    Args:
        record: what it is a part of.
        parent_id: see `Span`.
        answers_once: only the first response is stamped INFER_RESPONSE_COMPLETE, as Triton does for gRPC.
    """

    __slots__ = ("_answers_once", "_is_held", "_record", "_span", "_stamps")

    def __init__(self, record: _Record, parent_id: int = 0, *, answers_once: bool = False) -> None:
        finished = record.finished
        span = Span(record.new_id(), parent_id, new_span_id() if finished.context is not None else "")
        finished.spans.append(span)
        finished.byte_size += _SPAN_BYTE_SIZE
        self._record = record
        self._span = span
        self._stamps: list[Stamp] | None = span.stamps if record.level & TraceLevel.TIMESTAMPS else None
        self._answers_once: bool | None = answers_once
        self._is_held = False

    # For plugins.

    @property
    def id(self) -> int:
        """The number of this trace."""
        return self._span.id

    @property
    def parent_id(self) -> int:
        """The number of the trace that it is a part of; 0 for none."""
        return self._span.parent_id

    @property
    def context(self) -> str | None:
        """JSON for OpenTelemetry's propagators, to go on with this trace elsewhere; None in Triton's mode."""
        context = self._record.finished.context
        return context.carried(self._span.span_id) if context is not None else None

    def report_activity(self, name: str, timestamp_ns: int = 0) -> None:
        """Note an activity of one's own.

        Args:
            name: what it is called in the trace.
            timestamp_ns: of the monotonic clock; 0 for now.
        """
        stamps = self._stamps
        if stamps is not None and len(stamps) < _MOST_STAMPS:
            stamps.append((name, timestamp_ns or time.monotonic_ns()))

    def child(self, model_name: str = "", model_version: str = "") -> Trace:
        """The trace of a request that is made on behalf of this one.

        Args:
            model_name: the called model, as far as that is known.
            model_version: likewise.
        """
        child = Trace(self._record, self._span.id)
        child._answers_once = None
        child._span.model_name = model_name
        child._span.model_version = model_version
        return child

    # For the server.

    def started(self, model_name: str, model_version: str, request_id: str) -> None:
        """Its model has been found."""
        self.report_activity("REQUEST_START")
        span = self._span
        span.model_name = model_name
        span.model_version = model_version
        span.request_id = request_id

    def queued(self, model_version: str, inputs: Iterable[Tensor]) -> None:
        """The model takes it."""
        self._span.model_version = model_version
        self.report_activity("QUEUE_START")
        if self._record.level & TraceLevel.TENSORS:
            self._note_tensors(TENSOR_IN, inputs, time.monotonic_ns())

    def computed(self, times: Sequence[int]) -> None:
        """It has been executed: start, start and end of the framework's call, end."""
        if self._stamps is not None:
            self._stamps += zip(_COMPUTING, times, strict=True)
        if self._span.ended_ns:  # it had answered by itself, before its execution was over
            self._span.ended_ns = max(self._span.ended_ns, times[3])

    def hold(self, is_held: bool = True) -> None:
        self._is_held = is_held

    def responded(self, response: InferResponse | None, final: bool, *, is_let_go: bool = False) -> None:
        """The model has answered; None for a final flag that comes alone."""
        if self._is_held and not is_let_go:
            return
        now = time.monotonic_ns()
        span = self._span
        if response is not None and response.error is not None:
            span.error = response.error.message
        elif response is not None and self._record.level & TraceLevel.TENSORS:
            self._note_tensors(TENSOR_OUT, response.outputs, now)
        if final:
            span.ended_ns = now
        if self._answers_once is not None:
            self.report_activity("INFER_RESPONSE_COMPLETE", now)
            if self._answers_once:
                self._answers_once = None

    def _note_tensors(self, activity: str, tensors: Iterable[Tensor], now: int) -> None:
        span, finished = self._span, self._record.finished
        for tensor in tensors:
            if not tensor.element_count:  # Triton has none for these
                continue
            if finished.byte_size + tensor.byte_size > _MOST_TENSOR_BYTES:
                continue
            traced = TracedTensor(activity, now, tensor)
            span.tensors.append(traced)
            finished.byte_size += len(traced.data)


def new_trace(
    stream: object,
    level: TraceLevel,
    context: TraceContext | None,
    new_id: Callable[[], int],
    put: Callable[[FinishedTrace], None],
    *,
    answers_once: bool = False,
) -> Trace:
    """The trace of a client's request.

    Args:
        stream: where it belongs when it is complete.
        level: what is noted.
        context: what it is a part of outside of the server, if anything is to know it there.
        new_id: gives numbers, each once.
        put: takes it, on any thread, without waiting for anything.
        answers_once: see `Trace`.
    """
    record = _Record(FinishedTrace(stream, context), level, new_id, put)
    return Trace(record, answers_once=answers_once)
