"""Calls of `ModelStreamInfer`: one stream of a client, whose requests go to as many replicas as they need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from tritonpy.errors import TritonError
from tritonpy.frontends.grpc.errors import status_of
from tritonpy.frontends.grpc.native.call import CallConnection
from tritonpy.frontends.grpc.native.engine import StreamGone
from tritonpy.frontends.grpc.native.framing import PREFIX, Body
from tritonpy.frontends.grpc.native.metadata import OK_TRAILERS, RESPONSE_HEADERS, RequestHead
from tritonpy.protos import ModelStreamInferResponse

from tritonpy_router.grpc_client.call import Piece
from tritonpy_router.grpc_client.http2 import REFUSED_STREAM
from tritonpy_router.grpc_forward.call import MOST_QUEUED, ForwardedCall, lost, note_over
from tritonpy_router.grpc_forward.leg import Leg
from tritonpy_router.grpc_forward.message import framed, scanned
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked
from tritonpy_router.traffic import Traffic

_StreamKey: TypeAlias = tuple[str, str, int | str]
"""The model, version and sequence of messages that go to one replica, in their order."""


class _Awaiting:
    """A message of a stream that waits for a replica; satisfies `dispatcher.Routed`.

    Attributes:
        asked: what it says.
        parts: of the message, with its prefix.
        tried: replicas that could not be reached with it.
        behind: messages with the same key that have come since.
    """

    __slots__ = ("asked", "behind", "owner", "parts", "tried")

    def __init__(self, owner: ForwardedStream, asked: Asked, parts: Sequence[Piece]) -> None:
        self.owner = owner
        self.asked = asked
        self.parts = parts
        self.tried: tuple[Replica, ...] = ()
        self.behind: list[_Awaiting] = []

    def go(self, replica: Replica) -> None:
        """Send it there."""
        self.owner.send_to(replica, self)

    def no_replica(self, error: TritonError) -> None:
        """No replica takes it."""
        self.owner.refuse_one(self, error)


class ForwardedStream(ForwardedCall):
    """A call of `ModelStreamInfer`, whose requests may go to several replicas.

    All requests to one model go to one replica, which answers them in its order; those of sequences go where
    their sequences are. What was sent is not sent again: a replica that is lost ends the stream, since which
    of its requests were answered is the client's to know.
    """

    __slots__ = ("_awaiting", "_by_key", "_early", "_is_ended", "_legs", "_tasks", "_untaken")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, traffic: Traffic) -> None:
        super().__init__(connection, stream, head, traffic)
        self._legs: dict[Replica, Leg] = {}
        self._by_key: dict[_StreamKey, Replica] = {}
        self._awaiting: dict[_StreamKey, _Awaiting] = {}
        self._early: dict[Leg, list[_Awaiting]] = {}  # what has come for those that are not open yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ended = False
        self._untaken = 0

    def begin(self) -> None:
        """Clients wait for the headers, though no message may come for long."""
        self._has_headers = True
        if self._traffic.tracing is not None:
            self._begin_spans(self._traffic.tracing)
        try:
            self._connection.engine.headers(self._stream, RESPONSE_HEADERS)
        except StreamGone:
            return
        self._connection.sent()

    def _on_message(self, flag: int, body: Body) -> None:
        self._check_size(len(body))
        if flag:
            self._check_coding(flag)
        asked = scanned(flag, self._head.coding, (body,), 0)
        self._route(_Awaiting(self, asked, framed(flag, body)))

    def _route(self, waiting: _Awaiting) -> None:
        asked = waiting.asked
        key = self._key(asked)
        ahead = self._awaiting.get(key)
        if ahead is not None:
            ahead.behind.append(waiting)
            return
        known = None if waiting.tried or key[2] else self._by_key.get(key)
        leg = None if known is None else self._legs.get(known)
        if leg is not None and leg.replica.is_ready:
            self._send_on(leg, waiting)
            return
        self._awaiting[key] = waiting
        if self.spans is not None:
            self.spans.waits(waiting, asked)
        self._traffic.dispatcher.take(asked, waiting, waiting.tried)

    def _key(self, asked: Asked) -> _StreamKey:
        return asked.model, asked.version, asked.sequence if self._traffic.view.is_pinned(asked) else 0

    def _on_end(self) -> None:
        self._is_ended = True
        if not self._awaiting:
            self._end_legs()

    # What `_Awaiting` tells.

    def send_to(self, replica: Replica, waiting: _Awaiting) -> None:
        """A message goes to a replica, and those behind it."""
        key = self._key(waiting.asked)
        self._awaiting.pop(key, None)
        leg = self._legs.get(replica)
        is_new = leg is None
        if self.spans is not None:
            self.spans.picked(waiting, replica)
        if leg is None:
            leg = self._legs[replica] = Leg(self, replica)
            self._early[leg] = []
            if self.spans is not None:
                self.spans.tries(leg, replica, replica.place.grpc_port)
        self._by_key[key] = replica
        behind, waiting.behind = waiting.behind, []
        for each in (waiting, *behind):
            self._send_on(leg, each)
        if is_new:
            self._traffic.dispatcher.hand_over(waiting, leg)
            self._open(leg)
        else:
            self._traffic.dispatcher.release(replica, waiting)  # a stream counts once for each replica
        if self._is_ended and not self._awaiting:
            self._end_legs()

    def _send_on(self, leg: Leg, waiting: _Awaiting) -> None:
        if self.spans is not None:
            self.spans.carries(leg)
        leg.send(waiting.parts)
        early = self._early.get(leg)
        if early is not None:
            early.append(waiting)

    def refuse_one(self, waiting: _Awaiting, error: TritonError) -> None:
        """No replica takes a message, nor those behind it; the client is told as by a server."""
        self._awaiting.pop(self._key(waiting.asked), None)
        if self.spans is not None:
            self.spans.picked(waiting, None, error.message)
        for each in (waiting, *waiting.behind):
            self._traffic.metrics.refused("grpc", error)
            if not self.is_over:
                self._write_error(error, each.asked.id)
        if self._is_ended and not self._awaiting and not self.is_over:
            self._end_legs()

    # What legs tell.

    def leg_answers(self, leg: Leg) -> None:
        """A replica begins to answer; the client has its headers."""
        if self.spans is not None:
            self.spans.answers(leg)

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
        self._traffic.turn.sent(self._connection)
        if engine.queued(self._stream) <= MOST_QUEUED:
            leg.give_back()
        else:
            self._connection.tell_when_flushed(self)

    def leg_over(self, leg: Leg, code: int | None) -> None:
        """A replica's call has ended."""
        if self._legs.pop(leg.replica, None) is None:
            return
        if self.spans is not None:
            note_over(self.spans, leg, leg.replica, leg.status, code)
        traffic = self._traffic
        traffic.dispatcher.release(leg.replica, leg)
        status = dict(leg.status).get(b"grpc-status")
        if status is None:
            if code != REFUSED_STREAM:
                traffic.view.failed(leg.replica)
            traffic.metrics.lost(leg.replica)
            self.give_up(*status_of(lost(leg.replica, code)))
        elif status != b"0":
            leg.replica.ejection.answered()
            self._abandon()
            self._pass_on_status(leg.status)
        else:
            traffic.metrics.answered("grpc", leg.replica, traffic.now_s() - self._begun_s)
            if self._is_ended and not self._legs and not self._awaiting:
                self._pass_on_status(leg.status)

    def leg_flushed(self, leg: Leg) -> None:
        """Bytes have left for a replica: the client may send more."""
        self._early.pop(leg, None)
        self._return_room()

    def on_flushed(self) -> None:
        """Bytes have left for the client."""
        if self._connection.engine.queued(self._stream) > MOST_QUEUED:
            self._connection.tell_when_flushed(self)
            return
        for leg in self._legs.values():
            leg.give_back()

    # Inside.

    def _open(self, leg: Leg) -> None:
        """Have a leg begin, on a connection that there is or that has to be made."""
        upstream = self._traffic.pools(leg.replica).grpc.take()
        if upstream is not None:
            try:
                leg.open(upstream, self._block(leg))
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
                leg.open(upstream, self._block(leg))
                self._traffic.budget.sent()
                self.leg_flushed(leg)
        except (OSError, TimeoutError) as exc:
            self._traffic.view.failed(leg.replica)
            if not self.is_over:
                self._traffic.log_unreachable(leg.replica, exc)
                if self.spans is not None:
                    self.spans.attempt_ends(leg, f"it cannot be reached: {exc or type(exc).__name__}")
                self._leg_unreached(leg)

    def _taken(self, byte_size: int) -> None:
        self._untaken += byte_size
        self._return_room()

    def _return_room(self) -> None:
        """Let the client send more, unless much of what it sent waits to leave for a replica."""
        full = [leg for leg in self._legs.values() if leg.queued > MOST_QUEUED]
        for leg in full:
            if not leg.is_flushing and leg.upstream is not None:
                leg.is_flushing = True
                leg.upstream.tell_when_flushed(leg)
        if not full and self._untaken:
            untaken, self._untaken = self._untaken, 0
            self._connection.consumed(self._stream, untaken)
            self._connection.flush_soon()

    def _end_legs(self) -> None:
        if not self._legs:
            self._pass_on_status(OK_TRAILERS)
            self._connection.sent()  # nothing may come of a replica
        for leg in self._legs.values():
            leg.end()

    def _cancel_legs(self) -> None:
        legs, self._legs = self._legs, {}
        for leg in legs.values():
            leg.cancel()
            self._traffic.dispatcher.release(leg.replica, leg)

    def _write_error(self, error: TritonError, request_id: str) -> None:
        response = ModelStreamInferResponse(error_message=error.message)
        response.infer_response.id = request_id
        message = response.SerializeToString()
        try:
            self._connection.engine.data(self._stream, PREFIX.pack(0, len(message)) + message)
        except StreamGone:
            return
        self._connection.sent()

    def _leg_unreached(self, leg: Leg) -> None:
        """Nothing was sent there: what came for it goes elsewhere."""
        replica = leg.replica
        self._legs.pop(replica, None)
        self._traffic.metrics.retried(replica)
        self._traffic.dispatcher.release(replica, leg)
        self._by_key = {key: where for key, where in self._by_key.items() if where is not replica}
        for waiting in self._early.pop(leg, []):
            waiting.tried = (*waiting.tried, replica)
            self._route(waiting)

    def _abandon(self) -> None:
        self._cancel_legs()
        self._early.clear()
        awaiting, self._awaiting = self._awaiting, {}
        for waiting in awaiting.values():
            self._traffic.dispatcher.withdraw(waiting)
