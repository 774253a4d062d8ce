"""What all calls that replicas answer do alike: legs begin, and answers go to the client."""

from __future__ import annotations

import asyncio

from tritonpy.errors import TritonError, Unavailable
from tritonpy.frontends.grpc.native.call import Call, CallConnection
from tritonpy.frontends.grpc.native.engine import Headers, StreamGone
from tritonpy.frontends.grpc.native.metadata import RequestHead

from tritonpy_router.grpc_client import CANCEL
from tritonpy_router.grpc_forward.leg import Leg
from tritonpy_router.replica import Replica
from tritonpy_router.traffic import Traffic

MOST_QUEUED = 256 * 1024
"""Bytes for a client or a replica that may wait for its windows while more of them are taken."""
_OF_THE_CONNECTION = frozenset((b"grpc-timeout", b"te", b"content-type", b"connection", b"keep-alive"))
_HEADERS_ALONE = frozenset((b":status", b"content-type", b"grpc-encoding", b"grpc-accept-encoding"))


class ForwardedCall(Call):
    """A call that replicas answer; on the loop only.

    Args:
        traffic: gives it replicas and connections.
    """

    __slots__ = ("_begun_s", "_tasks", "_traffic")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, traffic: Traffic) -> None:
        super().__init__(connection, stream, head)
        self._traffic = traffic
        self._begun_s = traffic.now_s()
        self._tasks: set[asyncio.Task[None]] = set()

    # What legs tell.

    def leg_answers(self, leg: Leg, headers: Headers) -> None:
        """A replica begins to answer."""
        raise NotImplementedError

    def leg_data(self, leg: Leg, data: bytes) -> None:
        """A replica sends bytes of its answer."""
        leg.withheld += len(data)
        if self.is_over:
            leg.give_back()
            return
        engine = self._connection.engine
        try:
            engine.data(self._stream, data)
        except StreamGone:
            leg.give_back()
            return
        self._connection.sent()
        if engine.queued(self._stream) <= MOST_QUEUED:
            leg.give_back()
        else:
            self._connection.tell_when_flushed(self)

    def leg_over(self, leg: Leg, code: int | None) -> None:
        """A replica's call has ended."""
        raise NotImplementedError

    def leg_flushed(self, leg: Leg) -> None:
        """Bytes have left for a replica."""

    # Inside.

    def _headers(self) -> Headers:
        """The headers of the call, for a replica."""
        head = self._head
        headers = [
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *(
                (name, value)
                for name, value in head.headers
                if name not in _OF_THE_CONNECTION and not name.startswith(b":")
            ),
        ]
        if head.timeout_s is not None:
            left_s = head.timeout_s - (self._traffic.now_s() - self._begun_s)
            headers.append((b"grpc-timeout", b"%dm" % max(1, min(99_999_999, round(left_s * 1000)))))
        return headers

    def _open(self, leg: Leg) -> None:
        """Have a leg begin, on a connection that there is or that has to be made."""
        upstream = self._traffic.pools(leg.replica).grpc.take()
        if upstream is not None:
            try:
                leg.open(upstream, self._head.path.encode("latin-1"), self._headers())
                self._traffic.budget.sent()
                self.leg_flushed(leg)
                return
            except ConnectionError:
                pass  # it has just ended
        task = asyncio.get_running_loop().create_task(self._connect(leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, leg: Leg) -> None:
        try:
            upstream = await self._traffic.pools(leg.replica).grpc.connect()
            if not self.is_over:
                leg.open(upstream, self._head.path.encode("latin-1"), self._headers())
                self._traffic.budget.sent()
                self.leg_flushed(leg)
        except (OSError, TimeoutError) as exc:
            self._traffic.view.failed(leg.replica)
            if not self.is_over:
                self._traffic.log_unreachable(leg.replica, exc)
                self._leg_unreached(leg)

    def _leg_unreached(self, leg: Leg) -> None:
        """A replica cannot be reached; nothing was sent."""
        raise NotImplementedError

    def _refuse(self, error: TritonError) -> None:
        self._traffic.metrics.refused("grpc", error)
        self.fail(error)

    def _send_headers(self, headers: Headers) -> None:
        if self._has_headers or self.is_over:
            return
        self._has_headers = True
        try:
            self._connection.engine.headers(self._stream, headers)
        except StreamGone:
            return
        self._connection.sent()

    def _pass_on_status(self, status: Headers) -> None:
        """End the call as a replica has."""
        if self.is_over:
            return
        self._over()
        try:
            if self._has_headers:  # those of a replica may have come together with its status
                trailers = [pair for pair in status if pair[0] not in _HEADERS_ALONE]
                self._connection.engine.trailers(self._stream, trailers)
            else:
                self._connection.engine.headers(self._stream, status, True)
        except StreamGone:
            return
        self._end_early()
        self._connection.sent()


def lost(replica: Replica, code: int | None) -> Unavailable:
    """The error of a call that a replica did not answer; `code` as in `UpstreamCall.on_over`."""
    if code == CANCEL:
        return Unavailable(f"replica '{replica.name}' has given up the request")
    reason = "its connection is gone" if code is None else f"error {code} of HTTP/2"
    return Unavailable(
        f"replica '{replica.name}' was lost before it answered ({reason}): whether it has executed the "
        f"request is not known"
    )
