"""Spans that say themselves what they are, for programs without models, such as a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["server", "client", "internal"]
"""A span of a request that was taken, of one that was made elsewhere, or of work in between."""

Attributes = Mapping[str, str | int | float | bool]


class SpanEvent(NamedTuple):
    """A moment in a span.

    Attributes:
        name: what happened.
        ns: when, in nanoseconds of the monotonic clock.
        attributes: more about it.
    """

    name: str
    ns: int
    attributes: Attributes


@dataclass(slots=True, eq=False)
class DescribedSpan:
    """A span of any shape; `trace.Span` is that of a request to a model.

    Attributes:
        name: what it is called.
        kind: how it stands to others.
        span_id: names it, 16 hexadecimal digits.
        parent_id: names the span that it is a part of; "" for none.
        begun_ns, ended_ns: on the monotonic clock.
        attributes: about it.
        events: in the order in which they happened.
        error: why it failed; None if it did not.
    """

    name: str
    kind: Kind
    span_id: str
    parent_id: str
    begun_ns: int
    ended_ns: int = 0
    attributes: dict[str, str | int | float | bool] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    error: str | None = None
