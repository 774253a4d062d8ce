"""Calls of gRPC on their way to replicas, and the answers on their way back: messages that are not parsed."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from tritonpy.errors import TritonError, Unavailable
from tritonpy.frontends.grpc.errors import status_of
from tritonpy.frontends.grpc.native.call import Call, CallConnection, Refused
from tritonpy.frontends.grpc.native.engine import Headers, StreamGone
from tritonpy.frontends.grpc.native.framing import PREFIX, Body
from tritonpy.frontends.grpc.native.metadata import RESPONSE_HEADERS, RequestHead
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.grpc.stream import STOPPING
from tritonpy.protos import ModelStreamInferResponse

from tritonpy_router.grpc_client import CANCEL, REFUSED_STREAM, GrpcUpstream
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked, Unreadable, scan_message
from tritonpy_router.traffic import Traffic

_OF_THE_CONNECTION = frozenset((b"grpc-timeout", b"te", b"content-type", b"connection", b"keep-alive"))
_MOST_QUEUED = 256 * 1024
"""Bytes for a client or a replica that may wait for its windows while more of them are taken."""
_JOIN_BELOW = 16 * 1024
_MOST_SCANNED = 1 << 26
_REFUSAL = STOPPING.encode()
"""The text of UNAVAILABLE of a replica that is stopping and has not looked at the request."""
_HEADERS_ALONE = frozenset((b":status", b"content-type", b"grpc-encoding", b"grpc-accept-encoding"))


def scanned(flag: int, coding: bytes, body: Body) -> Asked:
    """What a message says.

    Args:
        flag: whether it is compressed.
        coding: how.
        body: of the message.

    Raises:
        Refused: it cannot be read.
    """
    try:
        if not flag:
            return scan_message(body)
        inflate = zlib.decompressobj(wbits=31 if coding == b"gzip" else 15)
        return scan_message(inflate.decompress(body, _MOST_SCANNED))
    except (Unreadable, zlib.error) as exc:
        raise Refused(Status.INTERNAL, f"Unable to parse request: {exc}") from None


def _framed(flag: int, body: Body) -> Sequence[Body]:
    """A message with its prefix, as pieces to send; a large one is not copied."""
    prefix = PREFIX.pack(flag, len(body))
    return (prefix, body) if len(body) > _JOIN_BELOW else (b"".join((prefix, body)),)


class _Leg:
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

    def __init__(self, owner: ForwardedCall, replica: Replica) -> None:
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

    def leg_answers(self, leg: _Leg, headers: Headers) -> None:
        """A replica begins to answer."""
        raise NotImplementedError

    def leg_data(self, leg: _Leg, data: bytes) -> None:
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
        if engine.queued(self._stream) <= _MOST_QUEUED:
            leg.give_back()
        else:
            self._connection.tell_when_flushed(self)

    def leg_over(self, leg: _Leg, code: int | None) -> None:
        """A replica's call has ended."""
        raise NotImplementedError

    def leg_flushed(self, leg: _Leg) -> None:
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

    def _open(self, leg: _Leg) -> None:
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

    async def _connect(self, leg: _Leg) -> None:
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

    def _leg_unreached(self, leg: _Leg) -> None:
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
        self._leg: _Leg | None = None

    def _on_message(self, flag: int, body: Body) -> None:
        if self._message is not None:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got more")
        self._check_size(len(body))
        if flag:
            self._check_coding(flag)
        if self._needs_model:
            self._asked = scanned(flag, self._head.coding, body)
        self._message = _framed(flag, body)
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
        leg = self._leg = _Leg(self, replica)
        assert self._message is not None  # it is complete
        leg.send(self._message)
        leg.end()
        self._open(leg)

    def no_replica(self, error: TritonError) -> None:
        """No replica takes it."""
        self._refuse(error)

    # What legs tell.

    def leg_answers(self, leg: _Leg, headers: Headers) -> None:
        """A replica begins to answer."""
        self._message = None
        self._release()
        self._send_headers(headers)

    def leg_over(self, leg: _Leg, code: int | None) -> None:
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
        self.fail(_lost(leg.replica, code))

    def on_flushed(self) -> None:
        """Bytes have left for the client."""
        leg = self._leg
        if leg is not None and leg.withheld:
            if self._connection.engine.queued(self._stream) > _MOST_QUEUED:
                self._connection.tell_when_flushed(self)
            else:
                leg.give_back()

    def _leg_unreached(self, leg: _Leg) -> None:
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

    def __init__(self, owner: ForwardedStream, asked: Asked, parts: Sequence[Body]) -> None:
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

    __slots__ = ("_awaiting", "_by_key", "_early", "_is_ended", "_legs", "_untaken")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, traffic: Traffic) -> None:
        super().__init__(connection, stream, head, traffic)
        self._legs: dict[Replica, _Leg] = {}
        self._by_key: dict[_StreamKey, Replica] = {}
        self._awaiting: dict[_StreamKey, _Awaiting] = {}
        self._early: dict[_Leg, list[_Awaiting]] = {}  # what has come for those that are not open yet
        self._is_ended = False
        self._untaken = 0

    def begin(self) -> None:
        """Clients wait for the headers, though no message may come for long."""
        self._send_headers(RESPONSE_HEADERS)

    def _on_message(self, flag: int, body: Body) -> None:
        self._check_size(len(body))
        if flag:
            self._check_coding(flag)
        asked = scanned(flag, self._head.coding, body)
        self._route(_Awaiting(self, asked, _framed(flag, body)))

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
        if leg is None:
            leg = self._legs[replica] = _Leg(self, replica)
            self._early[leg] = []
        self._by_key[key] = replica
        behind, waiting.behind = waiting.behind, []
        for each in (waiting, *behind):
            self._send_on(leg, each)
        if is_new:
            self._open(leg)
        else:
            self._traffic.dispatcher.release(replica)  # a stream counts once for each replica
        if self._is_ended and not self._awaiting:
            self._end_legs()

    def _send_on(self, leg: _Leg, waiting: _Awaiting) -> None:
        leg.send(waiting.parts)
        early = self._early.get(leg)
        if early is not None:
            early.append(waiting)

    def refuse_one(self, waiting: _Awaiting, error: TritonError) -> None:
        """No replica takes a message, nor those behind it; the client is told as by a server."""
        self._awaiting.pop(self._key(waiting.asked), None)
        for each in (waiting, *waiting.behind):
            self._traffic.metrics.refused("grpc", error)
            if not self.is_over:
                self._write_error(error, each.asked.id)
        if self._is_ended and not self._awaiting and not self.is_over:
            self._end_legs()

    # What legs tell.

    def leg_answers(self, leg: _Leg, headers: Headers) -> None:
        """A replica begins to answer; the client has its headers."""

    def leg_over(self, leg: _Leg, code: int | None) -> None:
        """A replica's call has ended."""
        if self._legs.pop(leg.replica, None) is None:
            return
        traffic = self._traffic
        traffic.dispatcher.release(leg.replica)
        status = dict(leg.status).get(b"grpc-status")
        if status is None:
            traffic.view.failed(leg.replica)
            traffic.metrics.lost(leg.replica)
            self.give_up(*status_of(_lost(leg.replica, code)))
        elif status != b"0":
            leg.replica.ejection.answered()
            self._abandon()
            self._pass_on_status(leg.status)
        else:
            traffic.metrics.answered("grpc", leg.replica, traffic.now_s() - self._begun_s)
            if self._is_ended and not self._legs and not self._awaiting:
                self._pass_on_status(leg.status)

    def leg_flushed(self, leg: _Leg) -> None:
        """Bytes have left for a replica: the client may send more."""
        self._early.pop(leg, None)
        self._return_room()

    def on_flushed(self) -> None:
        """Bytes have left for the client."""
        if self._connection.engine.queued(self._stream) > _MOST_QUEUED:
            self._connection.tell_when_flushed(self)
            return
        for leg in self._legs.values():
            leg.give_back()

    # Inside.

    def _taken(self, byte_size: int) -> None:
        self._untaken += byte_size
        self._return_room()

    def _return_room(self) -> None:
        """Let the client send more, unless much of what it sent waits to leave for a replica."""
        full = [leg for leg in self._legs.values() if leg.queued > _MOST_QUEUED]
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
            self._pass_on_status(((b"grpc-status", b"0"),))
        for leg in self._legs.values():
            leg.end()

    def _cancel_legs(self) -> None:
        legs, self._legs = self._legs, {}
        for leg in legs.values():
            leg.cancel()
            self._traffic.dispatcher.release(leg.replica)

    def _write_error(self, error: TritonError, request_id: str) -> None:
        response = ModelStreamInferResponse(error_message=error.message)
        response.infer_response.id = request_id
        message = response.SerializeToString()
        try:
            self._connection.engine.data(self._stream, PREFIX.pack(0, len(message)) + message)
        except StreamGone:
            return
        self._connection.sent()

    def _leg_unreached(self, leg: _Leg) -> None:
        """Nothing was sent there: what came for it goes elsewhere."""
        replica = leg.replica
        self._legs.pop(replica, None)
        self._traffic.metrics.retried(replica)
        self._traffic.dispatcher.release(replica)
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


def _is_refusal(status: Headers) -> bool:
    """Whether a replica has said that it is stopping, and so has not looked at the request."""
    found = dict(status)
    text = found.get(b"grpc-message", b"").replace(b"%20", b" ")
    return found.get(b"grpc-status") == b"14" and text == _REFUSAL


def _lost(replica: Replica, code: int | None) -> Unavailable:
    if code == CANCEL:
        return Unavailable(f"replica '{replica.name}' has given up the request")
    reason = "its connection is gone" if code is None else f"error {code} of HTTP/2"
    return Unavailable(
        f"replica '{replica.name}' was lost before it answered ({reason}): whether it has executed the "
        f"request is not known"
    )
