"""One call to a replica, on behalf of a client's call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tritonpy.frontends.grpc.native.engine import Headers

from tritonpy_router.grpc_client.call import Piece, UpstreamStream
from tritonpy_router.grpc_client.connection import GrpcUpstream
from tritonpy_router.replica import Replica


class LegOwner(Protocol):
    """The client's call, as its legs see it."""

    def leg_answers(self, leg: Leg) -> None:
        """A replica begins to answer."""

    def leg_data(self, leg: Leg, data: bytes) -> None:
        """A replica sends bytes of its answer."""

    def leg_over(self, leg: Leg, code: int | None) -> None:
        """A replica's call has ended; see `UpstreamCall.replica_over`."""

    def leg_flushed(self, leg: Leg) -> None:
        """Bytes have left for a replica."""


class Leg:
    """One call to a replica, for a call of a client; satisfies `UpstreamCall`.

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
        self.stream: UpstreamStream | None = None
        self.unsent: list[Piece] = []
        self.is_ended = False
        self.has_answered = False
        self.withheld = 0
        self.is_flushing = False
        self.status: Headers = ()

    def open(self, upstream: GrpcUpstream, block: bytes) -> None:
        """Begin the call, and send what has come for it."""
        stream = upstream.begin(block, self)
        self.upstream, self.stream = upstream, stream
        unsent, self.unsent = self.unsent, []
        for piece in unsent:
            upstream.data(stream, piece)
        if self.is_ended:
            upstream.end(stream)

    def send(self, parts: Sequence[Piece]) -> None:
        """Send a message."""
        if self.upstream is None or self.stream is None:
            self.unsent.extend(parts)
        else:
            for part in parts:
                self.upstream.data(self.stream, part)

    def end(self) -> None:
        """Send nothing more."""
        self.is_ended = True
        if self.upstream is not None and self.stream is not None:
            self.upstream.end(self.stream)

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        if self.upstream is not None and self.stream is not None:
            self.upstream.cancel(self.stream)
            self.give_back()

    def give_back(self) -> None:
        """Let the replica send as much again as was withheld; all its calls share that room."""
        withheld, self.withheld = self.withheld, 0
        if withheld and self.upstream is not None and self.stream is not None:
            self.upstream.consumed(self.stream, withheld)

    @property
    def queued(self) -> int:
        """Bytes that wait to leave."""
        return sum(map(len, self.unsent)) if self.stream is None else self.stream.queued

    # UpstreamCall

    def replica_headers(self, headers: Headers, is_last: bool) -> None:
        """The headers of the answer."""
        if is_last:
            self.status = headers
        else:
            self.has_answered = True
            self.owner.leg_answers(self)

    def replica_data(self, data: bytes) -> None:
        """Bytes of the answer."""
        self.has_answered = True
        self.owner.leg_data(self, data)

    def replica_trailers(self, headers: Headers) -> None:
        """What follows the data."""
        self.status = headers

    def replica_over(self, code: int | None) -> None:
        """The call is over."""
        self.give_back()
        self.owner.leg_over(self, code)

    def replica_flushed(self) -> None:
        """Bytes have left for the replica."""
        self.is_flushing = False
        self.owner.leg_flushed(self)
