"""The part of W3C's trace context that travels with requests: `traceparent` and `tracestate`."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST_STATE = 512  # what everybody must pass on; longer ones may be dropped

_ids = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a request belongs to.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: of the span that the request was made in, 16 digits; "" when it begins a trace.
        state: what other vendors want passed on; "" for nothing.
        is_sampled: whether whoever made the request traces it.
    """

    trace_id: str
    span_id: str = ""
    state: str = ""
    is_sampled: bool = True

    def carried(self, span_id: str) -> str:
        """This trace, seen from one of its spans, as the JSON that OpenTelemetry's propagators read."""
        carrier = {"traceparent": f"00-{self.trace_id}-{span_id}-01"}
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
