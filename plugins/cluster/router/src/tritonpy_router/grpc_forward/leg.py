"""One call to a replica, on behalf of a client's call."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from tritonpy.frontends.grpc.native.engine import Headers

from tritonpy_router.grpc_client import GrpcUpstream
from tritonpy_router.replica import Replica


class LegOwner(Protocol):
    """The client's call, as its legs see it."""

    def leg_answers(self, leg: Leg, headers: Headers) -> None:
        """A replica begins to answer."""

    def leg_data(self, leg: Leg, data: bytes) -> None:
        """A replica sends bytes of its answer."""

    def leg_over(self, leg: Leg, code: int | None) -> None:
        """A replica's call has ended; see `UpstreamCall.on_over`."""

    def leg_flushed(self, leg: Leg) -> None:
        """Bytes have left for a replica."""


class Leg:
    """One call to a replica, for a call of a client; satisfies `grpc_client.UpstreamCall`.

    Args:
        owner: the client's call.
        replica: where it goes.
    """

    __slots__ = (
        "has_answered",
        "is_ended",
        "is_flushing",
        "owner",
        "replica",
        "status",
        "stream",
        "unsent",
        "upstream",
        "withheld",
    )

    def __init__(self, owner: LegOwner, replica: Replica) -> None:
        self.owner = owner
        self.replica = replica
        self.upstream: GrpcUpstream | None = None
        self.stream = 0
        self.unsent: deque[bytes | memoryview] = deque()
        self.is_ended = False
        self.has_answered = False
        self.withheld = 0
        self.is_flushing = False
        self.status: Headers = ()

    def open(self, upstream: GrpcUpstream, path: bytes, headers: Headers) -> None:
        """Begin the call, and send what has come for it."""
        self.upstream = upstream
        self.stream = upstream.begin(path, headers, self)
        while self.unsent:
            upstream.data(self.stream, self.unsent.popleft())
        if self.is_ended:
            upstream.end(self.stream)

    def send(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send a message."""
        if self.upstream is None:
            self.unsent.extend(parts)
        else:
            for part in parts:
                self.upstream.data(self.stream, part)

    def end(self) -> None:
        """Send nothing more."""
        self.is_ended = True
        if self.upstream is not None:
            self.upstream.end(self.stream)

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        if self.upstream is not None:
            self.upstream.cancel(self.stream)
            self.give_back()

    def give_back(self) -> None:
        """Let the replica send as much again as was withheld; all its calls share that room."""
        withheld, self.withheld = self.withheld, 0
        if withheld and self.upstream is not None:
            self.upstream.consumed(self.stream, withheld)

    @property
    def queued(self) -> int:
        """Bytes that wait to leave."""
        if self.upstream is None:
            return sum(map(len, self.unsent))
        return self.upstream.queued(self.stream)

    # grpc_client.UpstreamCall

    def on_headers(self, headers: Headers, is_last: bool) -> None:
        """The headers of the answer."""
        if is_last:
            self.status = headers
        else:
            self.has_answered = True
            self.owner.leg_answers(self, headers)

    def on_data(self, data: bytes) -> None:
        """Bytes of the answer."""
        self.has_answered = True
        self.owner.leg_data(self, data)

    def on_trailers(self, headers: Headers) -> None:
        """What follows the data."""
        self.status = headers

    def on_over(self, code: int | None) -> None:
        """The call is over."""
        self.give_back()
        self.owner.leg_over(self, code)

    def on_flushed(self) -> None:
        """Bytes have left for the replica."""
        self.is_flushing = False
        self.owner.leg_flushed(self)
