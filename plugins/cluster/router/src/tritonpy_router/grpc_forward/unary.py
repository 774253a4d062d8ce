"""Calls of one message each way, which may be sent to another replica while nothing was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tritonpy.errors import TritonError
from tritonpy.frontends.grpc.native.call import CallConnection
from tritonpy.frontends.grpc.native.engine import Headers, StreamGone
from tritonpy.frontends.grpc.native.framing import PREFIX
from tritonpy.frontends.grpc.native.metadata import RequestHead
from tritonpy.frontends.grpc.stream import STOPPING

from tritonpy_router.grpc_client.call import Piece, UpstreamStream
from tritonpy_router.grpc_client.connection import GrpcUpstream
from tritonpy_router.grpc_client.http2 import REFUSED_STREAM
from tritonpy_router.grpc_forward.call import MOST_QUEUED, ForwardedCall, lost, note_over
from tritonpy_router.grpc_forward.message import OneMessage, scanned
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked
from tritonpy_router.traffic import Traffic

_REFUSAL = STOPPING.encode()
"""The text of UNAVAILABLE of a replica that is stopping and has not looked at the request."""
_PREFIX_SIZE = PREFIX.size
_MOST_REFUSALS = 2
"""Times that a replica may have refused a call without a look at it, and yet be asked again."""
_NOTHING = Asked()
_NONE: tuple[Replica, ...] = ()


class ForwardedUnary(ForwardedCall):
    """A call of one message each way; satisfies `dispatcher.Routed` and `UpstreamCall`.

    It is at one replica at a time, and is itself what the connection to that replica tells.

    Args:
        needs_model: the message names a model, which decides where it goes; else any replica can answer.
        is_inference: it may be traced.
    """

    __slots__ = (
        "_answered_byte_size",
        "_arriving",
        "_asked",
        "_has_answered",
        "_is_inference",
        "_message",
        "_needs_model",
        "_refusals",
        "_replica",
        "_status",
        "_task",
        "_tried",
        "_upstream",
        "_upstream_stream",
        "_withheld",
    )

    def __init__(
        self,
        connection: CallConnection,
        stream: int,
        head: RequestHead,
        traffic: Traffic,
        needs_model: bool = True,
        is_inference: bool = False,
    ) -> None:
        super().__init__(connection, stream, head, traffic)
        self._is_inference = is_inference
        self._needs_model = needs_model
        self._arriving: OneMessage | None = None
        self._message: Sequence[Piece] = ()
        self._asked = _NOTHING
        self._tried = _NONE
        self._refusals = 0
        # At the replica that has it.
        self._replica: Replica | None = None
        self._task: asyncio.Task[None] | None = None
        self._upstream: GrpcUpstream | None = None
        self._upstream_stream: UpstreamStream | None = None
        self._has_answered = False
        self._answered_byte_size = 0
        self._status: Headers = ()
        self._withheld = 0

    # What the client's connection calls.

    def on_flushed(self) -> None:
        """Bytes have left for the client."""
        if self._withheld:
            if self._connection.engine.queued(self._stream) > MOST_QUEUED:
                self._connection.tell_when_flushed(self)
            else:
                self._give_back()

    def _awaited(self) -> object:
        if self._is_half_closed:
            return None
        return 0 if self._arriving is None else self._arriving.received

    def _read(self, data: bytes, is_last: bool) -> None:
        """See `Call`; the pieces of the message are kept as they came."""
        arriving, byte_size = self._arriving, len(data)
        if byte_size:  # also of what is refused, else its client would have no room left
            self._connection.consumed(self._stream, byte_size)
        if arriving is None:
            if is_last and byte_size >= _PREFIX_SIZE:
                flag, size = PREFIX.unpack_from(data)
                if flag <= 1 and size == byte_size - _PREFIX_SIZE:
                    self._check_size(size)
                    self._hold(size)
                    self._take((data,), flag)
                    return
            arriving = self._arriving = OneMessage(self._announced)
        if byte_size:
            arriving.add(data)
        if is_last:
            arriving.end()
            self._arriving = None
            self._take(arriving.pieces, arriving.flag)

    def _take(self, message: Sequence[Piece], flag: int) -> None:
        """The message is complete."""
        if flag:
            self._check_coding(flag)
        if self._needs_model:
            self._asked = scanned(flag, self._head.coding, message, _PREFIX_SIZE)
        self._message = message
        tracing = self._traffic.tracing
        if tracing is not None and self._is_inference:
            spans = self._begin_spans(tracing)
            if spans is not None:
                spans.names(self._asked)
        self._dispatch()

    # dispatcher.Routed

    def go(self, replica: Replica) -> None:
        """Send it there."""
        self._replica = replica
        if self.spans is not None:
            self.spans.picked(self, replica)
            self.spans.tries(self, replica, replica.place.grpc_port)
        upstream = self._traffic.pools(replica).grpc.take()
        if upstream is not None:
            try:
                self._ask(upstream)
                return
            except ConnectionError:
                pass  # it has just ended
        self._task = asyncio.get_running_loop().create_task(self._connect(replica))

    def no_replica(self, error: TritonError) -> None:
        """No replica takes it."""
        if self.spans is not None:
            self.spans.picked(self, None, error.message)
        self._refuse(error)

    def _ask(self, upstream: GrpcUpstream) -> None:
        self._upstream_stream = upstream.ask(self._block(self), self._message, self)
        self._upstream = upstream
        self._traffic.budget.sent()

    async def _connect(self, replica: Replica) -> None:
        try:
            upstream = await self._traffic.pools(replica).grpc.connect()
            if not self.is_over:
                self._ask(upstream)
        except (OSError, TimeoutError) as exc:
            self._traffic.view.failed(replica)
            if not self.is_over:
                self._traffic.log_unreachable(replica, exc)
                if self.spans is not None:
                    self.spans.attempt_ends(self, f"it cannot be reached: {exc or type(exc).__name__}")
                self._try_another(replica)

    # UpstreamCall

    def replica_headers(self, headers: Headers, is_last: bool) -> None:
        """The headers of the answer."""
        if is_last:
            self._status = headers
            return
        self._has_answered = True
        self._message = ()
        if self.spans is not None:
            self.spans.answers(self)
        if self._held:
            self._release()
        if self.is_over:
            return
        self._has_headers = True
        try:
            self._connection.engine.headers(self._stream, headers)
        except StreamGone:
            return
        self._traffic.turn.sent(self._connection)

    def replica_data(self, data: bytes) -> None:
        """Bytes of the answer."""
        byte_size = len(data)
        self._withheld += byte_size
        if not self.is_over:
            engine = self._connection.engine
            self._answered_byte_size += byte_size
            try:
                engine.data(self._stream, data)
            except StreamGone:
                self._give_back()
                return
            self._traffic.turn.sent(self._connection)
            if self._answered_byte_size > MOST_QUEUED and engine.queued(self._stream) > MOST_QUEUED:
                self._connection.tell_when_flushed(self)
                return
        self._give_back()

    def replica_flushed(self) -> None:
        """Nothing waits for that."""

    def replica_trailers(self, headers: Headers) -> None:
        """What follows the data."""
        self._status = headers

    def replica_over(self, code: int | None) -> None:
        """The replica's call has ended."""
        if self._withheld:
            self._give_back()
        replica, self._replica = self._replica, None
        self._upstream = self._upstream_stream = None
        if replica is None:
            return
        traffic, status = self._traffic, self._status
        if self.spans is not None:
            note_over(self.spans, self, replica, status, code)
        if status:
            replica.ejection.answered()
            if not self._has_answered and self._message and _is_refusal(status):
                self._status = ()
                self._try_another(replica)
                return
            traffic.metrics.answered("grpc", replica, traffic.now_s() - self._begun_s)
            traffic.dispatcher.release(replica, self, self._is_timed(status))
            self._pass_on_status(status)
            return
        is_unseen = code == REFUSED_STREAM and not self._has_answered
        if not is_unseen:
            traffic.view.failed(replica)
        may_again = not self._has_answered and self._message
        if may_again and is_unseen and self._refusals < _MOST_REFUSALS:
            self._refusals += 1  # a connection that ends, or takes fewer calls now: it may have another one
            self._try_another(replica, self._tried)
            return
        if may_again and (is_unseen or traffic.may_retry(self._asked, replica, len(self._tried))):
            self._try_another(replica)
            return
        traffic.metrics.lost(replica)
        traffic.dispatcher.release(replica, self)
        self.fail(lost(replica, code))

    # Inside.

    def _dispatch(self) -> None:
        traffic = self._traffic
        if self._needs_model:
            if self.spans is not None:
                self.spans.waits(self, self._asked)
            traffic.dispatcher.take(self._asked, self, self._tried)
            return
        try:
            replica = traffic.view.any_ready(self._tried)
        except TritonError as exc:
            self._refuse(exc)
            return
        traffic.dispatcher.take_any(replica)
        self.go(replica)

    def _try_another(self, replica: Replica, tried: tuple[Replica, ...] | None = None) -> None:
        self._replica = None
        self._tried = (*self._tried, replica) if tried is None else tried
        self._traffic.metrics.retried(replica)
        self._traffic.dispatcher.release(replica, self)
        self._dispatch()

    def _is_timed(self, status: Headers) -> bool:
        """Whether it is an inference that went well."""
        return self._head.path.endswith("/ModelInfer") and dict(status).get(b"grpc-status") == b"0"

    def _give_back(self) -> None:
        """Let the replica send as much again as was withheld; all its calls share that room."""
        withheld, self._withheld = self._withheld, 0
        if self._upstream is not None and self._upstream_stream is not None:
            self._upstream.consumed(self._upstream_stream, withheld)

    def _abandon(self) -> None:
        replica, self._replica = self._replica, None
        if replica is None:
            self._traffic.dispatcher.withdraw(self)
            return
        if self._upstream is not None and self._upstream_stream is not None:
            self._upstream.cancel(self._upstream_stream)
            self._give_back()
            self._upstream = self._upstream_stream = None
        self._traffic.dispatcher.release(replica, self)


def _is_refusal(status: Headers) -> bool:
    """Whether a replica has said that it is stopping, and so has not looked at the request."""
    found = dict(status)
    text = found.get(b"grpc-message", b"").replace(b"%20", b" ")
    return found.get(b"grpc-status") == b"14" and text == _REFUSAL
