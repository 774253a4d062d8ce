"""Calls of one message each way, which may be sent to another replica while nothing was answered."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.errors import TritonError
from tritonpy.frontends.grpc.native.call import CallConnection, Refused
from tritonpy.frontends.grpc.native.engine import Headers
from tritonpy.frontends.grpc.native.framing import Body
from tritonpy.frontends.grpc.native.metadata import RequestHead
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.grpc.stream import STOPPING

from tritonpy_router.grpc_client import REFUSED_STREAM
from tritonpy_router.grpc_forward.call import MOST_QUEUED, ForwardedCall, lost
from tritonpy_router.grpc_forward.leg import Leg
from tritonpy_router.grpc_forward.message import framed, scanned
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked
from tritonpy_router.traffic import Traffic

_REFUSAL = STOPPING.encode()
"""The text of UNAVAILABLE of a replica that is stopping and has not looked at the request."""


class ForwardedUnary(ForwardedCall):
    """A call of one message each way; satisfies `dispatcher.Routed`.

    Args:
        needs_model: the message names a model, which decides where it goes; else any replica can answer.
    """

    __slots__ = ("_asked", "_leg", "_message", "_needs_model", "_tried")

    def __init__(
        self,
        connection: CallConnection,
        stream: int,
        head: RequestHead,
        traffic: Traffic,
        needs_model: bool = True,
    ) -> None:
        super().__init__(connection, stream, head, traffic)
        self._needs_model = needs_model
        self._message: Sequence[Body] | None = None
        self._asked = Asked()
        self._tried: tuple[Replica, ...] = ()
        self._leg: Leg | None = None

    def _on_message(self, flag: int, body: Body) -> None:
        if self._message is not None:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got more")
        self._check_size(len(body))
        if flag:
            self._check_coding(flag)
        if self._needs_model:
            self._asked = scanned(flag, self._head.coding, body)
        self._message = framed(flag, body)
        self._hold(len(body))

    def _on_end(self) -> None:
        if self._message is None:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got none")
        self._dispatch()

    def _awaited(self) -> object:
        if self._is_half_closed:
            return None
        return 0 if self._reader is None else self._reader.received

    def _dispatch(self) -> None:
        if self._needs_model:
            self._traffic.dispatcher.take(self._asked, self, self._tried)
            return
        try:
            replica = self._traffic.view.any_ready(self._tried)
        except TritonError as exc:
            self._refuse(exc)
            return
        self._traffic.dispatcher.take_any(replica)
        self.go(replica)

    # dispatcher.Routed

    def go(self, replica: Replica) -> None:
        """Send it there."""
        leg = self._leg = Leg(self, replica)
        assert self._message is not None  # it is complete
        leg.send(self._message)
        leg.end()
        self._open(leg)

    def no_replica(self, error: TritonError) -> None:
        """No replica takes it."""
        self._refuse(error)

    # What legs tell.

    def leg_answers(self, leg: Leg, headers: Headers) -> None:
        """A replica begins to answer."""
        self._message = None
        self._release()
        self._send_headers(headers)

    def leg_over(self, leg: Leg, code: int | None) -> None:
        """A replica's call has ended."""
        if leg is not self._leg:
            return
        self._leg = None
        traffic = self._traffic
        if leg.status:
            leg.replica.ejection.answered()
            if not leg.has_answered and _is_refusal(leg.status) and self._may_try_again():
                self._try_another(leg.replica)
                return
            traffic.metrics.answered("grpc", leg.replica, traffic.now_s() - self._begun_s)
            traffic.dispatcher.release(leg.replica)
            self._pass_on_status(leg.status)
            return
        is_unseen = code == REFUSED_STREAM and not leg.has_answered
        if not is_unseen:
            traffic.view.failed(leg.replica)
        may_again = not leg.has_answered and self._may_try_again()
        if may_again and (is_unseen or traffic.may_retry(self._asked, leg.replica, len(self._tried))):
            self._try_another(leg.replica)
            return
        traffic.metrics.lost(leg.replica)
        traffic.dispatcher.release(leg.replica)
        self.fail(lost(leg.replica, code))

    def on_flushed(self) -> None:
        """Bytes have left for the client."""
        leg = self._leg
        if leg is not None and leg.withheld:
            if self._connection.engine.queued(self._stream) > MOST_QUEUED:
                self._connection.tell_when_flushed(self)
            else:
                leg.give_back()

    def _leg_unreached(self, leg: Leg) -> None:
        self._leg = None
        self._try_another(leg.replica)

    def _may_try_again(self) -> bool:
        return self._message is not None

    def _try_another(self, replica: Replica) -> None:
        self._tried = (*self._tried, replica)
        self._traffic.metrics.retried(replica)
        self._traffic.dispatcher.release(replica)
        self._dispatch()

    def _abandon(self) -> None:
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.cancel()
            self._traffic.dispatcher.release(leg.replica)
        else:
            self._traffic.dispatcher.withdraw(self)


def _is_refusal(status: Headers) -> bool:
    """Whether a replica has said that it is stopping, and so has not looked at the request."""
    found = dict(status)
    text = found.get(b"grpc-message", b"").replace(b"%20", b" ")
    return found.get(b"grpc-status") == b"14" and text == _REFUSAL
