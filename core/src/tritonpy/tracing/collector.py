"""Traces as spans for an OpenTelemetry collector, through OpenTelemetry's own SDK.

Importing this needs the extra `tritonpy[opentelemetry]`. The SDK's batch processor has the queue, the thread
and the retries. Its tracer is not used: a trace comes here complete, with times and ids of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

from tritonpy.tracing.described import DescribedSpan, Kind
from tritonpy.tracing.settings import TRITON, CollectorSettings, TraceOrigin
from tritonpy.tracing.trace import FinishedTrace, Span, Stamp, TraceContext, new_span_id

_ROOT = "InferRequest"
_COMPUTE = "compute"
_OF_FRONTENDS = ("HTTP_", "GRPC_", "INFER_RESPONSE_COMPLETE")
_COMPUTE_PREFIX = "COMPUTE_"
_KINDS: dict[Kind, SpanKind] = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanExport:
    """Sends traces to a collector; satisfies `TraceDestination`.

    Args:
        settings: of the way there.
        origin: who sends.

    Raises:
        ValueError: the sizes of the settings do not fit together.
    """

    def __init__(self, settings: CollectorSettings, origin: TraceOrigin = TRITON) -> None:
        exporter = OTLPSpanExporter(endpoint=settings.url or None)
        self._resource = _resource(settings.resource, origin.service)
        self._scope = InstrumentationScope(origin.scope)
        self._processor = BatchSpanProcessor(
            exporter,
            max_queue_size=settings.max_queue_size,
            schedule_delay_millis=settings.schedule_delay_ms,
            max_export_batch_size=settings.max_export_batch_size,
        )

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        to_wall_clock = time.time_ns() - time.monotonic_ns()
        for trace in traces:
            for span in self._spans(trace, to_wall_clock):
                self._processor.on_end(span)

    def end_stream(self, stream: object) -> None:
        """Do nothing: all traces go to one collector."""

    def close(self) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # theirs

    def _spans(self, trace: FinishedTrace, to_wall_clock: int) -> Iterator[ReadableSpan]:
        context = trace.context
        assert context is not None  # taken in mode `opentelemetry`
        writer = _Writer(context, self._resource, self._scope, to_wall_clock)
        yield from map(writer.described, trace.described)
        if trace.spans:
            yield from writer.request(trace)


def _resource(given: Sequence[tuple[str, str]], service: str) -> Resource:
    """Given attributes, then those of the environment; `service` is the name where neither has one."""
    attributes = dict(given)
    if SERVICE_NAME not in attributes:
        found = str(Resource.create().attributes.get(SERVICE_NAME, ""))
        if not found or found.startswith("unknown_service"):
            attributes[SERVICE_NAME] = service
    return Resource.create(dict(attributes))


class _Writer:
    """Makes the spans of one trace."""

    def __init__(
        self, context: TraceContext, resource: Resource, scope: InstrumentationScope, to_wall_clock: int
    ) -> None:
        self._context = context
        self._resource = resource
        self._scope = scope
        self._offset = to_wall_clock
        self._state = TraceState.from_header([context.state]) if context.state else TraceState()

    def request(self, trace: FinishedTrace) -> Iterator[ReadableSpan]:
        """The spans of a client's request: for it, for each model it came to, for each execution."""
        client, root_id = trace.spans[0], new_span_id()
        ids = {span.id: span.span_id for span in trace.spans}
        times = [ns for span in trace.spans for _, ns in span.stamps]
        times += [span.ended_ns for span in trace.spans if span.ended_ns]
        if not times:
            return
        for span in trace.spans:
            yield from self.model_spans(span, ids.get(span.parent_id, root_id))
        stamps = [stamp for stamp in client.stamps if stamp[0].startswith(_OF_FRONTENDS)]
        bounds = min(times), max(times)
        yield self.span(_ROOT, root_id, self._context.span_id, self._events(stamps), bounds, remote=True)

    def described(self, span: DescribedSpan) -> ReadableSpan:
        """One span that says itself what it is."""
        return self.span(
            span.name,
            span.span_id,
            span.parent_id,
            [Event(name, dict(attributes), ns + self._offset) for name, ns, attributes in span.events],
            (span.begun_ns, span.ended_ns),
            attributes=dict(span.attributes),
            status=None if span.error is None else Status(StatusCode.ERROR, span.error),
            kind=_KINDS[span.kind],
            remote=span.parent_id == self._context.span_id,
        )

    def model_spans(self, span: Span, parent_id: str) -> Iterator[ReadableSpan]:
        """The spans of a request to one model: its own and those of its executions."""
        stamps = [stamp for stamp in span.stamps if not stamp[0].startswith(_OF_FRONTENDS)]
        if not stamps:  # it was refused before it got there
            return
        if span.ended_ns:
            stamps.append(("REQUEST_END", span.ended_ns))
        stamps.sort(key=_when)
        bounds = stamps[0][1], stamps[-1][1]
        for execution in _executions(stamps):
            times = execution[0][1], execution[-1][1]
            yield self.span(_COMPUTE, new_span_id(), span.span_id, self._events(execution), times)
        others = [stamp for stamp in stamps if not stamp[0].startswith(_COMPUTE_PREFIX)]
        attributes: dict[str, AttributeValue] = {
            "triton.model_name": span.model_name,
            "triton.model_version": int(span.model_version) if span.model_version.isdecimal() else -1,
            "triton.trace_id": span.id,
            "triton.trace_parent_id": span.parent_id,
        }
        if span.request_id:
            attributes["triton.request_id"] = span.request_id
        status = Status(StatusCode.ERROR, span.error) if span.error else Status()
        yield self.span(
            span.model_name,
            span.span_id,
            parent_id,
            self._events(others),
            bounds,
            attributes=attributes,
            status=status,
        )

    def span(
        self,
        name: str,
        span_id: str,
        parent_id: str,
        events: Sequence[Event],
        bounds: tuple[int, int],
        *,
        attributes: dict[str, AttributeValue] | None = None,
        status: Status | None = None,
        kind: SpanKind = SpanKind.SERVER,
        remote: bool = False,
    ) -> ReadableSpan:
        """One span; `bounds` are its start and end on the monotonic clock."""
        return ReadableSpan(
            name,
            context=self._span_context(span_id),
            parent=self._span_context(parent_id, remote=remote) if parent_id else None,
            resource=self._resource,
            attributes=attributes or {},
            events=events,
            kind=kind,
            status=status or Status(),
            start_time=bounds[0] + self._offset,
            end_time=bounds[1] + self._offset,
            instrumentation_scope=self._scope,
        )

    def _events(self, stamps: Sequence[Stamp]) -> list[Event]:
        """Stamps by their time, as events."""
        return [Event(name, timestamp=ns + self._offset) for name, ns in sorted(stamps, key=_when)]

    def _span_context(self, span_id: str, *, remote: bool = False) -> SpanContext:
        return SpanContext(int(self._context.trace_id, 16), int(span_id, 16), remote, _SAMPLED, self._state)


def _executions(stamps: Sequence[Stamp]) -> list[list[Stamp]]:
    """The stamps of each execution: a request may be executed again."""
    executions: list[list[Stamp]] = []
    for stamp in stamps:
        if stamp[0] == "COMPUTE_START":
            executions.append([])
        if stamp[0].startswith(_COMPUTE_PREFIX) and executions:
            executions[-1].append(stamp)
    return executions


def _when(stamp: Stamp) -> int:
    return stamp[1]
