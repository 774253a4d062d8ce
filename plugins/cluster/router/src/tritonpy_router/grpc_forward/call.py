"""What all calls that replicas answer do alike."""

from __future__ import annotations

from tritonpy.errors import TritonError, Unavailable
from tritonpy.frontends.grpc.native.call import Call, CallConnection
from tritonpy.frontends.grpc.native.engine import Headers, StreamGone
from tritonpy.frontends.grpc.native.metadata import RequestHead

from tritonpy_router.grpc_client.engine import CANCEL
from tritonpy_router.replica import Replica
from tritonpy_router.traffic import Traffic

MOST_QUEUED = 256 * 1024
"""Bytes for a client or a replica that may wait for its windows while more of them are taken."""
_HEADERS_ALONE = frozenset((b":status", b"content-type", b"grpc-encoding", b"grpc-accept-encoding"))


class ForwardedCall(Call):
    """A call that replicas answer; on the loop only.

    Args:
        traffic: gives it replicas and connections.
    """

    __slots__ = ("_begun_s", "_traffic")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, traffic: Traffic) -> None:
        super().__init__(connection, stream, head)
        self._traffic = traffic
        self._begun_s = traffic.now_s()

    def _block(self) -> bytes:
        """The headers of the call, for a replica."""
        head, traffic = self._head, self._traffic
        if head.timeout_s is None:
            return traffic.blocks.block(head, None)
        return traffic.blocks.block(head, head.timeout_s - (traffic.now_s() - self._begun_s))

    def _refuse(self, error: TritonError) -> None:
        self._traffic.metrics.refused("grpc", error)
        self.fail(error)

    def _pass_on_status(self, status: Headers) -> None:
        """End the call as a replica has; called while what the replica sent is looked at."""
        if self.is_over:
            return
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


def lost(replica: Replica, code: int | None) -> Unavailable:
    """The error of a call that a replica did not answer; `code` as in `UpstreamCall.replica_over`."""
    if code == CANCEL:
        return Unavailable(f"replica '{replica.name}' has given up the request")
    reason = "its connection is gone" if code is None else f"error {code} of HTTP/2"
    return Unavailable(
        f"replica '{replica.name}' was lost before it answered ({reason}): whether it has executed the "
        f"request is not known"
    )
