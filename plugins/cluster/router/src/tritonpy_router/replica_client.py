"""A router's end of the service `tritonpy.cluster.v1.Replica`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import unquote

from google.protobuf.message import DecodeError, Message
from tritonpy.frontends.grpc.native.framing import PREFIX, BrokenFraming, MessageReader
from tritonpy.frontends.grpc.status import Status

from tritonpy_router.grpc_client.call import Headers, UpstreamStream
from tritonpy_router.grpc_client.connection import GrpcUpstream
from tritonpy_router.grpc_client.header_blocks import encoded
from tritonpy_router.grpc_client.pool import GrpcPool
from tritonpy_router.protos import ApplyRequest, ApplyResponse, WatchRequest, WatchResponse
from tritonpy_router.replica import Place
from tritonpy_router.secrets import bearer

_SERVICE = b"/tritonpy.cluster.v1.Replica/"
_MOST_BYTES = 1 << 26  # of a message; an index of 100,000 versions has some ten million


class ReplicaCallError(Exception):
    """A call has ended otherwise than well.

    Args:
        status: of gRPC; UNAVAILABLE where the connection was lost or could not be made.
        text: in words.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text or Status(status).name)
        self.status = status


class _GivenUpError(Exception):
    """The connection of a call was given up, so that nobody will hear of it."""


class ReplicaClient:
    """Calls of one replica; on the loop only.

    Args:
        place: of the replica.
        port: of the service.
        token: that it asks for; "" for none.
        tls: how the port is encrypted; None for not.
    """

    def __init__(self, place: Place, port: int, token: str, tls: ssl.SSLContext | None) -> None:
        self._pool = GrpcPool(place._replace(grpc_port=port), tls)
        self._under_way: set[_Call] = set()
        self._block = encoded(
            (
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                *(((b"authorization", bearer(token)),) if token else ()),
            )
        )

    async def watch(self, interval_ms: int, on_message: Callable[[WatchResponse], None]) -> None:
        """Hand on what the replica tells of itself, for as long as it does.

        Raises:
            ReplicaCallError: it tells no more.
        """

        def read(body: bytes) -> None:
            on_message(WatchResponse.FromString(body))

        await self._call(b"Watch", WatchRequest(interval_ms=interval_ms), read)
        raise ReplicaCallError(Status.UNAVAILABLE, "it has ended the call")

    async def apply(self, request: ApplyRequest, timeout_s: float) -> ApplyResponse:
        """Have the replica meet some wishes; asked for again on another connection if this one is given up.

        Raises:
            ReplicaCallError: it does not answer.
            TimeoutError: not in time.
        """
        answers: list[ApplyResponse] = []
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    await self._call(
                        b"Apply", request, lambda body: answers.append(ApplyResponse.FromString(body))
                    )
                    break
                except _GivenUpError:  # to be asked twice changes nothing
                    continue
        if not answers:
            raise ReplicaCallError(Status.INTERNAL, "it has answered nothing")
        return answers[0]

    def retire(self) -> None:
        """Make calls on another connection from now on: this one may have been lost without a word."""
        self._pool.retire()
        for call in list(self._under_way):
            call.give_up()

    def drop(self) -> None:
        """End all calls; new ones can be made."""
        self._pool.drop()

    def close(self) -> None:
        """End all calls."""
        self._pool.close()
        self._pool.drop()

    async def _call(self, name: bytes, request: Message, on_message: Callable[[bytes], None]) -> None:
        try:
            upstream = self._pool.take() or await self._pool.connect()
            call = _Call(upstream, on_message)
            message = request.SerializeToString()
            block = encoded(((b":path", _SERVICE + name),)) + self._block
            call.begin(block, PREFIX.pack(0, len(message)) + message)
        except (OSError, TimeoutError) as exc:
            raise ReplicaCallError(Status.UNAVAILABLE, str(exc) or type(exc).__name__) from None
        self._under_way.add(call)
        try:
            status, text = await call.ended
        finally:
            self._under_way.discard(call)
            call.cancel()
        if status:
            raise ReplicaCallError(status, text)


class _Call:
    """One call; satisfies `UpstreamCall`.

    Attributes:
        ended: the status and its text.
    """

    def __init__(self, upstream: GrpcUpstream, on_message: Callable[[bytes], None]) -> None:
        self._upstream = upstream
        self._on_message = on_message
        self._reader = MessageReader(self._announced)
        self._stream: UpstreamStream | None = None
        self.ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    def begin(self, block: bytes, message: bytes) -> None:
        """Send it.

        Raises:
            ConnectionError: the connection takes no calls any more.
        """
        self._stream = self._upstream.ask(block, (message,), self)

    def give_up(self) -> None:
        """Its connection may be gone."""
        if not self.ended.done():
            self.ended.set_exception(_GivenUpError())

    def cancel(self) -> None:
        """Nobody waits for the rest."""
        if self._stream is not None:
            self._upstream.cancel(self._stream)

    def replica_headers(self, headers: Headers, is_last: bool) -> None:
        """See `UpstreamCall`."""
        self._note_status(headers)
        if dict(headers).get(b":status") != b"200":
            self._end(Status.UNAVAILABLE, "the port speaks no gRPC")

    def replica_data(self, data: bytes) -> None:
        """See `UpstreamCall`."""
        if self._stream is not None:  # data follows its beginning
            self._upstream.consumed(self._stream, len(data))
        try:
            for _, body in self._reader.feed(data):
                self._on_message(bytes(body))
        except (BrokenFraming, DecodeError) as exc:
            self._end(Status.INTERNAL, f"its message cannot be read: {exc}")

    def replica_trailers(self, headers: Headers) -> None:
        """See `UpstreamCall`."""
        self._note_status(headers)

    def replica_over(self, code: int | None) -> None:
        """See `UpstreamCall`."""
        reason = "its connection is gone" if code is None else f"error {code} of HTTP/2"
        self._end(Status.UNAVAILABLE, reason)

    def replica_flushed(self) -> None:
        """See `UpstreamCall`."""

    def _note_status(self, headers: Headers) -> None:
        found = dict(headers)
        status = found.get(b"grpc-status")
        if status is not None:
            number = int(status) if status.isdigit() else Status.UNKNOWN
            self._end(number, unquote(found.get(b"grpc-message", b"").decode("latin-1")))

    def _end(self, status: int, text: str) -> None:
        if not self.ended.done():
            self.ended.set_result((status, text))

    def _announced(self, byte_size: int) -> None:
        if byte_size > _MOST_BYTES:
            raise BrokenFraming(f"it has {byte_size} bytes, and {_MOST_BYTES} are taken")
