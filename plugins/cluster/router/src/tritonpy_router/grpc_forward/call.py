"""What all calls that replicas answer do alike."""

from __future__ import annotations

from urllib.parse import unquote

from tritonpy.errors import TritonError, Unavailable
from tritonpy.frontends.grpc.native.call import Call, CallConnection
from tritonpy.frontends.grpc.native.engine import Headers, StreamGone
from tritonpy.frontends.grpc.native.metadata import RequestHead
from tritonpy.frontends.grpc.status import Status

from tritonpy_router.grpc_client.http2 import CANCEL, REFUSED_STREAM
from tritonpy_router.replica import Replica
from tritonpy_router.request_spans import RequestSpans
from tritonpy_router.tracing import RouterTracing
from tritonpy_router.traffic import Traffic

MOST_QUEUED = 256 * 1024
"""Bytes for a client or a replica that may wait for its windows while more of them are taken."""
_STATUS = "rpc.grpc.status_code"
_HEADERS_ALONE = frozenset((b":status", b"content-type", b"grpc-encoding", b"grpc-accept-encoding"))


class ForwardedCall(Call):
    """A call that replicas answer; on the loop only.

    Args:
        traffic: gives it replicas and connections.

    Attributes:
        spans: notes what happens; None for a call that is not traced.
    """

    __slots__ = ("_begun_s", "_traffic", "spans")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, traffic: Traffic) -> None:
        super().__init__(connection, stream, head)
        self._traffic = traffic
        self._begun_s = traffic.now_s()
        self.spans: RequestSpans | None = None

    def refuse(self, status: Status, text: str) -> None:
        """End the call with a status, and read no more of it."""
        if self.spans is not None:
            self.spans.outcome(text, (_STATUS, int(status)))
        super().refuse(status, text)

    def on_gone(self) -> None:
        """The client wants no answer any more, or its connection is lost."""
        if self.spans is not None:
            self.spans.client_left()
        super().on_gone()

    def _block(self, attempt: object) -> bytes:
        """The headers of the call, for a replica; `attempt` is what spans know it by."""
        head, traffic, spans = self._head, self._traffic, self.spans
        left_s = None if head.timeout_s is None else head.timeout_s - (traffic.now_s() - self._begun_s)
        if spans is None:
            return traffic.blocks.block(head, left_s)
        spans.sent(attempt)
        return traffic.blocks.block(head, left_s, spans.headers(attempt))

    def _begin_spans(self, tracing: RouterTracing) -> RequestSpans | None:
        """Have the call noted, if it is to be."""
        path = self._head.path
        how = {"network.protocol.name": "grpc", "rpc.system": "grpc", "rpc.method": path.rpartition("/")[2]}
        spans = self.spans = tracing.begin(self._head.headers, round(self._begun_s * 1e9), how)
        return spans

    def _over(self) -> None:
        super()._over()
        if self.spans is not None:
            self.spans.end()
            self.spans = None

    def _refuse(self, error: TritonError) -> None:
        self._traffic.metrics.refused("grpc", error)
        self.fail(error)

    def _pass_on_status(self, status: Headers) -> None:
        """End the call as a replica has; called while what the replica sent is looked at."""
        if self.is_over:
            return
        if self.spans is not None:
            self.spans.outcome(*read_status(status))
        self._over()
        try:
            if self._has_headers:  # those of a replica may have come together with its status
                if len(status) > 1:
                    status = [pair for pair in status if pair[0] not in _HEADERS_ALONE]
                self._connection.engine.trailers(self._stream, status)
            else:
                self._connection.engine.headers(self._stream, status, True)
        except StreamGone:
            return
        if not self._is_half_closed:
            self._end_early()
        self._traffic.turn.sent(self._connection)


def read_status(headers: Headers) -> tuple[str | None, tuple[str, int]]:
    """The error of a status, None for OK, and the status as spans have it."""
    found = dict(headers)
    text = found.get(b"grpc-status", b"")
    status = int(text) if text.isdigit() else int(Status.UNKNOWN)
    message = unquote(found.get(b"grpc-message", b"").decode("latin-1"))
    return (message or f"status {status}") if status else None, (_STATUS, status)


def note_over(
    spans: RequestSpans, attempt: object, replica: Replica, status: Headers, code: int | None
) -> None:
    """Note that a replica's call is over: with a status, or without one and with a code of HTTP/2."""
    if status:
        spans.attempt_ends(attempt, *read_status(status))
    else:
        spans.attempt_ends(attempt, lost(replica, code).message)


def lost(replica: Replica, code: int | None) -> Unavailable:
    """The error of a call that a replica did not answer; `code` as in `UpstreamCall.replica_over`."""
    if code == CANCEL:
        return Unavailable(f"replica '{replica.name}' has given up the request")
    if code == REFUSED_STREAM:
        return Unavailable(f"replica '{replica.name}' has refused the request and not looked at it")
    reason = "its connection is gone" if code is None else f"error {code} of HTTP/2"
    return Unavailable(
        f"replica '{replica.name}' was lost before it answered ({reason}): whether it has executed the "
        f"request is not known"
    )
