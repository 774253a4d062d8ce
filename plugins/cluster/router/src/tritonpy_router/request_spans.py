"""The router's spans of one request: the request itself, its waits for a replica, and each attempt at one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tritonpy.tracing.described import DescribedSpan, Kind, SpanEvent
from tritonpy.tracing.trace import FinishedTrace, TraceContext, new_span_id

from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked

_SPAN_BYTE_SIZE = 1024
_MOST_WAITS = 1000
"""Of one stream, which may live for days: later waits are counted and not noted."""

Status: TypeAlias = tuple[str, int]
"""The attribute of a status, and the status."""


class RequestSpans:
    """Notes on one request, which are handed on when it ends; on the loop only.

    A wait or an attempt is known by what waits or is sent: a stream has several at a time.

    Args:
        context: the trace that it is a part of.
        put: takes the finished trace.
        clock: gives the time in nanoseconds.
        begun_ns: when the request began to arrive.
        attributes: say how it came.
    """

    __slots__ = (
        "_attempt_count",
        "_attempts",
        "_clock",
        "_error",
        "_put",
        "_root",
        "_status",
        "_trace",
        "_wait_count",
        "_waits",
    )

    def __init__(
        self,
        context: TraceContext,
        put: Callable[[FinishedTrace], None],
        clock: Callable[[], int],
        begun_ns: int,
        attributes: Mapping[str, str],
    ) -> None:
        self._put = put
        self._clock = clock
        self._trace = FinishedTrace(None, context)
        self._root = DescribedSpan("RouteRequest", "server", new_span_id(), context.span_id, begun_ns)
        self._root.attributes.update(attributes)
        self._trace.described.append(self._root)
        self._waits: dict[object, DescribedSpan] = {}
        self._attempts: dict[object, DescribedSpan] = {}
        self._wait_count = self._attempt_count = 0
        self._error: str | None = None
        self._status: Status | None = None
        self._note(self._root, "REQUEST_RECEIVED")

    def names(self, asked: Asked) -> None:
        """It says for which model it is."""
        for name, value in (("model_name", asked.model), ("model_version", asked.version)):
            if value:
                self._root.attributes[f"triton.{name}"] = value
        if asked.id:
            self._root.attributes["triton.request_id"] = asked.id

    def waits(self, waiting: object, asked: Asked) -> None:
        """A replica is to be picked for it, or for a message of its stream, now or later."""
        self._wait_count += 1
        if self._wait_count > _MOST_WAITS:
            return
        span = self._waits[waiting] = self._child("queue", "internal")
        if asked.model:
            span.attributes["triton.model_name"] = asked.model

    def picked(self, waiting: object, replica: Replica | None, error: str | None = None) -> None:
        """A wait has ended: with a replica, or with an error."""
        span = self._waits.pop(waiting, None)
        if span is not None:
            self._close(span, error, None)
            if replica is not None:
                span.attributes["tritonpy.replica"] = replica.name

    def tries(self, attempt: object, replica: Replica, port: int) -> None:
        """It goes to a replica; `port` is the port there."""
        span = self._attempts[attempt] = self._child("attempt", "client")
        self._root.attributes["tritonpy.replica"] = replica.name
        self._attempt_count += 1
        self._root.attributes["tritonpy.attempt_count"] = self._attempt_count
        span.attributes |= {
            "tritonpy.replica": replica.name,
            "tritonpy.attempt": self._attempt_count,
            "server.address": replica.place.host,
            "server.port": port,
        }

    def headers(self, attempt: object) -> tuple[tuple[bytes, bytes], ...]:
        """What an attempt is sent with, so that the replica's spans are its children."""
        context = self._trace.context
        assert context is not None  # given to the constructor
        parent = b"traceparent", context.traceparent(self._attempts[attempt].span_id).encode()
        return (parent, (b"tracestate", context.state.encode("latin-1"))) if context.state else (parent,)

    def sent(self, attempt: object) -> None:
        """An attempt's connection is there, and its head has been handed to it."""
        self._note(self._attempts[attempt], "REQUEST_SENT")

    def carries(self, attempt: object) -> None:
        """A message of the stream goes with an attempt."""
        attributes = self._attempts[attempt].attributes
        attributes["tritonpy.request_count"] = int(attributes.get("tritonpy.request_count", 0)) + 1

    def answers(self, attempt: object) -> None:
        """A replica begins to answer."""
        span = self._attempts.get(attempt)
        if span is not None:
            self._note(span, "RESPONSE_START")

    def attempt_ends(self, attempt: object, error: str | None, status: Status | None = None) -> None:
        """An attempt is over: why it has failed, and the status of the answer, as far as there are any."""
        span = self._attempts.pop(attempt, None)
        if span is not None:
            self._close(span, error, status)

    def outcome(self, error: str | None, status: Status | None) -> None:
        """What the client is answered is known: an error, or None, and the status of the answer."""
        self._error, self._status = error, status

    def client_left(self) -> None:
        """Nobody waits for the answer any more, or for the rest of it."""
        self.outcome("the client was gone before it had its answer", None)

    def end(self) -> None:
        """It is over: hand the spans on, those that have not ended with its outcome."""
        for span in self._waits.values():
            self._close(span, self._error, None)
        for span in (*self._attempts.values(), self._root):
            self._close(span, self._error, self._status)
        if self._wait_count > _MOST_WAITS:
            self._root.attributes["tritonpy.queue_count"] = self._wait_count
        self._trace.byte_size = len(self._trace.described) * _SPAN_BYTE_SIZE
        self._put(self._trace)

    def _close(self, span: DescribedSpan, error: str | None, status: Status | None) -> None:
        span.ended_ns = self._clock()
        span.error = error
        if status is not None:
            name, code = status
            span.attributes[name] = code

    def _child(self, name: str, kind: Kind) -> DescribedSpan:
        span = DescribedSpan(name, kind, new_span_id(), self._root.span_id, self._clock())
        self._trace.described.append(span)
        return span

    def _note(self, span: DescribedSpan, event: str) -> None:
        span.events.append(SpanEvent(event, self._clock(), {}))
