"""Connections to the gRPC port of a replica: streams of HTTP/2 whose bytes are handed on."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, cast

import ngh2
from ngh2 import events
from ngh2.exceptions import NGH2Error

from tritonpy_router.replica import Place

Headers = Sequence[tuple[bytes, bytes]]

REFUSED_STREAM = 7
"""The code of HTTP/2 for a stream that was not looked at, so that it may be sent anew."""
CANCEL = 8

_MOST_CALLS = 512
_STREAM_WINDOW = 512 << 10
_CONNECTION_WINDOW = _MOST_CALLS * _STREAM_WINDOW  # so that clients which take nothing leave room for others
_RESETS_AT_ONCE, _RESETS_PER_S = 100.0, 25.0
"""Calls that are cancelled at once, and per second after that: servers end a connection for more."""
_FRAME = 64 * 1024
_PIECE = 64 * 1024
_MOST_PIECES = 8
_SCRATCH_BYTE_SIZE = 256 * 1024
_CONNECT_S = 5.0


class UpstreamCall(Protocol):
    """Takes what comes of one call; nothing more comes after `on_over`."""

    def on_headers(self, headers: Headers, is_last: bool) -> None:
        """The headers of the answer."""

    def on_data(self, data: bytes) -> None:
        """Bytes of the answer; they are to be given back by `consumed`."""

    def on_trailers(self, headers: Headers) -> None:
        """What follows the data."""

    def on_over(self, code: int | None) -> None:
        """The stream is over: None if the connection was lost, else a code of HTTP/2, 0 for a proper end."""

    def on_flushed(self) -> None:
        """Bytes have left; called once after `tell_when_flushed`."""


class GrpcUpstream(asyncio.BufferedProtocol):
    """One connection to a replica; on the loop only.

    Args:
        scratch: where bytes are received; one for all where a read is complete before the next begins.
        authority: what it is called in requests.
        scheme: `http` or `https`.
        on_close: called when it takes no more calls.
        on_lost: called when it is over.
    """

    def __init__(
        self,
        scratch: memoryview,
        authority: bytes,
        scheme: bytes,
        on_close: Callable[[GrpcUpstream], None],
        on_lost: Callable[[GrpcUpstream], None],
    ) -> None:
        self._scratch = scratch
        self._pseudo = ((b":method", b"POST"), (b":scheme", scheme), (b":authority", authority))
        self._on_close: Callable[[GrpcUpstream], None] | None = on_close
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, UpstreamCall] = {}
        self._awaiting_flush: dict[UpstreamCall, None] = {}
        self._is_flush_due = False
        self._is_feeding = False
        self._is_write_paused = False
        self._resets_left = _RESETS_AT_ONCE
        self._resets_at = self._loop.time()
        self._late_resets: deque[int] = deque()
        configuration = ngh2.Configuration(auto_window_update=False, peer_max_concurrent_streams=1024)
        self._engine = ngh2.Connection(ngh2.Role.CLIENT, configuration)

    @property
    def is_open(self) -> bool:
        """Whether calls can be begun."""
        return (
            self._transport is not None and not self._transport.is_closing() and self._engine.can_send_request
        )

    @property
    def call_count(self) -> int:
        """Calls that are open."""
        return len(self._calls)

    def begin(self, path: bytes, headers: Headers, call: UpstreamCall) -> int:
        """Begin a call; returns its stream.

        Raises:
            ConnectionError: the connection takes none any more.
        """
        if not self.is_open:
            raise ConnectionResetError("the connection has just ended")
        try:
            stream = self._engine.send_request((*self._pseudo, (b":path", path), *headers))
        except NGH2Error as exc:
            raise ConnectionError(str(exc)) from None
        self._calls[stream] = call
        self._flush_soon()
        return stream

    def data(self, stream: int, data: bytes | memoryview, is_last: bool = False) -> None:
        """Send bytes of a call; those of one that is over are dropped."""
        with suppress(NGH2Error):
            self._engine.send_data(stream, data, end_stream=is_last)
        self._flush_soon()

    def end(self, stream: int) -> None:
        """Send nothing more of a call."""
        with suppress(NGH2Error):
            self._engine.end_stream(stream)
        self._flush_soon()

    def cancel(self, stream: int) -> None:
        """The answer of a call is not wanted any more; its `UpstreamCall` hears nothing more."""
        if self._calls.pop(stream, None) is not None:
            self._late_resets.append(stream)
            if len(self._late_resets) == 1:
                self._reset_some()

    def consumed(self, stream: int, byte_size: int) -> None:
        """Let the replica send so much more."""
        with suppress(NGH2Error):
            self._engine.acknowledge_received_data(byte_size, stream)
        self._flush_soon()

    def queued(self, stream: int) -> int:
        """Bytes of a call that wait to leave."""
        return self._engine.queued_body_size(stream)

    def tell_when_flushed(self, call: UpstreamCall) -> None:
        """Call `on_flushed` once when bytes have left."""
        self._awaiting_flush[call] = None

    def close(self) -> None:
        """Close when the calls that are open are over."""
        if not self._calls:
            self._close()
        else:
            self._retire()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self._engine.initiate_connection(
            {
                ngh2.Setting.ENABLE_PUSH: 0,
                ngh2.Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                ngh2.Setting.MAX_FRAME_SIZE: _FRAME,
            }
        )
        self._engine.set_local_window_size(_CONNECTION_WINDOW)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, and so are its calls."""
        self._transport = None
        self._retire()
        self._on_lost(self)
        calls, self._calls = self._calls, {}
        self._awaiting_flush.clear()
        self._late_resets.clear()
        for call in calls.values():
            call.on_over(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self._is_feeding = True
        try:
            self._engine.receive_data(self._scratch[:nbytes])
            self._tell()
        except NGH2Error:
            self._is_feeding = False
            self._flush()
            self._close()
            return
        finally:
            self._is_feeding = False
        self._flush()

    def pause_writing(self) -> None:
        """The replica reads slowly: what is sent stays in the engine."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """The replica has caught up."""
        self._is_write_paused = False
        self._flush()

    # Inside.

    def _tell(self) -> None:
        calls = self._calls
        for event in self._engine.events():
            if isinstance(event, events.DataReceived):
                call = calls.get(event.stream_id)
                if call is not None:
                    if event.data:
                        call.on_data(event.data)
                elif event.data:
                    self.consumed(event.stream_id, len(event.data))
            elif isinstance(event, events.ResponseReceived):
                call = calls.get(event.stream_id)
                if call is not None:
                    call.on_headers(event.headers, event.end_stream)
            elif isinstance(event, events.TrailersReceived):
                call = calls.get(event.stream_id)
                if call is not None:
                    call.on_trailers(event.headers)
            elif isinstance(event, events.StreamClosed):
                call = calls.pop(event.stream_id, None)
                if call is not None:
                    call.on_over(event.error_code)
            elif isinstance(event, events.GoAwayReceived):
                self._retire()

    def _reset_some(self) -> None:
        """Reset as many streams as the replica lets a connection, and others a little later."""
        now_s = self._loop.time()
        refilled = self._resets_left + (now_s - self._resets_at) * _RESETS_PER_S
        self._resets_left, self._resets_at = min(_RESETS_AT_ONCE, refilled), now_s
        while self._late_resets and self._resets_left >= 1:
            self._resets_left -= 1
            with suppress(NGH2Error):
                self._engine.reset_stream(self._late_resets.popleft(), CANCEL)
        if self._late_resets and self._transport is not None:
            self._loop.call_later(1 / _RESETS_PER_S, self._reset_some)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not (self._is_flush_due or self._is_feeding):
            self._is_flush_due = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or self._is_write_paused:
            return
        take = self._engine.data_to_send
        while True:
            try:
                pieces = [take(_PIECE)]
                while len(pieces[-1]) == _PIECE and len(pieces) < _MOST_PIECES:
                    pieces.append(take(_PIECE))
            except NGH2Error:
                self._close()
                return
            if len(pieces) > 1:
                transport.writelines(pieces)
            elif pieces[0]:
                transport.write(pieces[0])
            if len(pieces[-1]) < _PIECE or self._is_write_paused:
                break
        self._tell()  # sending may end streams
        if self._awaiting_flush:
            waiting, self._awaiting_flush = self._awaiting_flush, {}
            for call in waiting:
                call.on_flushed()
        if not (self._engine.want_read or self._engine.want_write) or (
            self._on_close is None and not self._calls
        ):
            self._close()

    def _retire(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(self)

    def _close(self) -> None:
        self._retire()
        if self._transport is not None:
            self._transport.close()


class GrpcPool:
    """The connections to one replica: one, and more when it has all the calls it may have; on the loop only.

    Args:
        place: where it is.
        tls: how its port is encrypted; None for not.
    """

    MOST_CALLS = _MOST_CALLS
    """Calls of one connection, before another one is made."""

    def __init__(self, place: Place, tls: ssl.SSLContext | None) -> None:
        self._place = place
        self._tls = tls
        host = f"[{place.host}]" if ":" in place.host else place.host
        self._authority = f"{host}:{place.grpc_port}".encode()
        self._open: list[GrpcUpstream] = []
        self._all: set[GrpcUpstream] = set()
        self._shared = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        self._is_closed = False
        self._connecting: asyncio.Task[GrpcUpstream] | None = None

    def take(self) -> GrpcUpstream | None:
        """A connection that takes a call; None if one has to be made."""
        for connection in self._open:
            if connection.call_count < self.MOST_CALLS and connection.is_open:
                return connection
        return None

    async def connect(self) -> GrpcUpstream:
        """Make a connection, or wait for the one that is being made.

        Raises:
            OSError: it cannot be made.
            TimeoutError: it takes too long.
        """
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def close(self) -> None:
        """Close each connection when its calls are over."""
        self._is_closed = True
        self.retire()

    def retire(self) -> None:
        """Give new calls another connection; those that are open close when their calls are over."""
        for connection in list(self._open):
            connection.close()

    def drop(self) -> None:
        """End all connections, and with them what is under way on them."""
        for connection in list(self._all):
            connection.abort()

    async def _connect(self) -> GrpcUpstream:
        place = self._place
        loop = asyncio.get_running_loop()
        scheme = b"http" if self._tls is None else b"https"
        scratch = self._shared
        if type(loop).__name__ == "ProactorEventLoop":  # reads in the background
            scratch = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: GrpcUpstream(scratch, self._authority, scheme, self._closed, self._all.discard),
                place.host,
                place.grpc_port,
                ssl=self._tls,
            )
        self._open.append(connection)
        self._all.add(connection)
        if self._is_closed:
            connection.close()
        return connection

    def _connected(self, task: asyncio.Task[GrpcUpstream]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waited for it has it

    def _closed(self, connection: GrpcUpstream) -> None:
        if connection in self._open:
            self._open.remove(connection)
