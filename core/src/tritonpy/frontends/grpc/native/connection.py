"""One HTTP/2 connection of a gRPC client: bytes in, calls, bytes out.

The states that a connection goes through are those of `State`. Whatever calls send while the loop runs
through one of its turns leaves in one write at the end of it, or when the bytes that came have been looked
at. What a client does not take stays in the engine, and nothing is read meanwhile that would have to be
answered there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, cast

from tritonpy.frontends.grpc.guard import CATEGORY_OF, CallGuard
from tritonpy.frontends.grpc.native.call import Call, CallConnection, CallPort, RefusedCall
from tritonpy.frontends.grpc.native.engine import (
    Engine,
    EngineError,
    EngineFactory,
    EngineSettings,
    ErrorCode,
    Headers,
    StreamGone,
)
from tritonpy.frontends.grpc.native.keepalive import TOO_MANY_PINGS, Lifetime, Lifetimes, PingStrikes
from tritonpy.frontends.grpc.native.metadata import RequestHead, RequestHeads
from tritonpy.frontends.grpc.native.tls import speaks_http2
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.reserve import NO_ROOM

_PING = b"tritonpy"
_LEAVING = b"leaving!"

_MOST_QUEUED = 64 * 1024 * 1024
"""Bytes of answers that may wait for the windows of one client before its next calls are refused."""
_PIECE = 64 * 1024
"""Bytes that are taken from the engine at once; more cost more, since it would have to find room for them."""
_MOST_PIECES = 8
"""Pieces of one write; fewer would wake the client more often, for less."""

CallFactory: TypeAlias = Callable[[CallConnection, int, RequestHead], Call]
"""Makes the call of a stream."""


class State(Enum):
    """The states of a connection."""

    OPEN = auto()
    """Calls come and are answered."""
    LEAVING = auto()
    """The client has been asked to open no more calls; those on their way are still taken."""
    ENDING = auto()
    """No more calls are taken; the connection ends when all are answered."""
    LOST = auto()
    """It is over."""


@dataclass(slots=True, kw_only=True)
class Port(CallPort):
    """The state that all connections of a server share.

    Attributes:
        engine: makes their engines.
        engine_settings: how those are set up.
        calls: what answers each call, by its full name.
        guard: refuses calls whose key is not given; None where none needs one.
        heads: understands headers.
        scratch: where bytes are received; one for all where a read is complete before the next begins.
        on_open, on_close: called with each connection.
        lifetimes: how they are kept.
    """

    engine: EngineFactory
    engine_settings: EngineSettings
    calls: dict[str, CallFactory]
    guard: CallGuard | None
    heads: RequestHeads
    scratch: memoryview
    on_open: Callable[[GrpcConnection], None]
    on_close: Callable[[GrpcConnection], None]
    lifetimes: Lifetimes


class GrpcConnection(asyncio.BufferedProtocol):
    """A client's connection; on the loop only.

    Satisfies `engine.Receiver`, `call.CallConnection`, `keepalive.Kept`, `stalled_clients.Waiting` and
    `reserve.Reservable`.

    Args:
        port: where the client came in.

    Attributes:
        engine: the HTTP/2 state.
        port: as given.
        state: see `State`.
        has_greeted: the client has said that it speaks HTTP/2.
        is_reserved: it came when there was no room, and may ask once for health.
    """

    __slots__ = (
        "_awaiting_flush",
        "_calls",
        "_is_feeding",
        "_is_flush_due",
        "_is_write_paused",
        "_lifetime",
        "_loop",
        "_resets",
        "_sent_count",
        "_strikes",
        "_transport",
        "_written_byte_size",
        "engine",
        "has_greeted",
        "is_reserved",
        "port",
        "state",
    )

    def __init__(self, port: Port) -> None:
        self.port = port
        self.engine: Engine = port.engine(self)
        self.state = State.OPEN
        self.has_greeted = False
        self.is_reserved = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._awaiting_flush: dict[Call, None] = {}
        self._resets: dict[int, int] = {}
        self._is_write_paused = False
        self._is_feeding = False
        self._is_flush_due = False
        self._sent_count = 0
        self._written_byte_size = 0
        self._strikes = PingStrikes(port.lifetimes)
        self._lifetime: Lifetime | None = None

    # What the server and its clocks call.

    @property
    def call_count(self) -> int:
        """Calls that are open."""
        return len(self._calls)

    @property
    def peer(self) -> str:
        """The address of the client; "" if that is not known."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else ""

    @property
    def is_leaving(self) -> bool:
        """No new calls are wanted."""
        return self.state in (State.LEAVING, State.ENDING, State.LOST)

    def ping(self) -> None:
        """Ask the client whether it is there."""
        if self.state is not State.LOST:
            self.engine.ping(_PING)
            self.flush_soon()

    def leave(self, text: bytes = b"") -> None:
        """Ask the client to open no more calls, and say why; when it has heard that, `end` follows."""
        if self.state is State.OPEN and self._transport is not None and not self._transport.is_closing():
            self.state = State.LEAVING
            self.engine.shutdown_notice(text)
            self._flush()  # engines let pings overtake, and the answer must be behind what was sent before it
            self.engine.ping(_LEAVING)
            self.flush_soon()

    def end(self, code: int = 0, text: bytes = b"") -> None:
        """Take no more calls, and close when those that are open have been answered."""
        if self.state in (State.OPEN, State.LEAVING):
            self.state = State.ENDING
            self.engine.goaway(code, text)
            self.flush_soon()

    @property
    def calls(self) -> Iterable[Call]:
        """The calls that are open, and those whose answers have not been taken."""
        return list(self._calls.values())

    @property
    def is_blocked(self) -> bool:
        """The client takes nothing of what is written, and nothing is read from it meanwhile."""
        return self._is_write_paused

    @property
    def taken_byte_size(self) -> int:
        """Bytes that have left, ever."""
        transport = self._transport
        return self._written_byte_size - (0 if transport is None else transport.get_write_buffer_size())

    def progress(self) -> object:
        """A value that changes as the client takes bytes that it has to; None when there are none."""
        transport = self._transport
        if transport is None or not (self._is_write_paused or transport.is_closing()):
            return None
        return self.taken_byte_size

    def time_out(self) -> None:
        """Do not wait for the client any longer."""
        self.abort()

    def refuse_all(self, status: Status, text: str) -> None:
        """End every open call."""
        for call in list(self._calls.values()):
            call.give_up(status, text)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self._lifetime = Lifetime(self, self.port.lifetimes, self._loop)
        self.port.on_open(self)
        if not speaks_http2(transport):
            self.abort()
            return
        self.engine.start(self.port.engine_settings)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self.state = State.LOST
        self._transport = None
        if self._lifetime is not None:
            self._lifetime.stop()
            self._lifetime = None
        self._resets.clear()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.on_closed()
        self._tell_flushed()
        self.engine.close()
        self.port.on_close(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self.port.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self.state is State.LOST:
            return
        if self._lifetime is not None:
            self._lifetime.last_read = self._loop.time()
        self._is_feeding = True
        try:
            self.engine.feed(self.port.scratch[:nbytes])
        except EngineError:
            self._is_feeding = False
            self._flush()
            self._close()
            return
        finally:
            self._is_feeding = False
        self._flush()

    def eof_received(self) -> bool:
        """The client's side has ended, and with it all its calls."""
        return False

    def pause_writing(self) -> None:
        """The client reads slowly: what is sent stays in the engine, and no more is asked of it meanwhile."""
        self._is_write_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_write_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._flush()

    # What the engine calls.

    def on_request(self, stream: int, headers: Headers, is_last: bool) -> None:
        """A client has made a call."""
        port = self.port
        head = port.heads.read(headers)
        make = port.calls.get(head.path)
        if self.is_reserved:
            self._loop.call_soon(self.end, ErrorCode.NO_ERROR, NO_ROOM.encode())  # not while bytes are read
        if head.http_status:
            with suppress(StreamGone):
                self.engine.headers(stream, ((b":status", head.http_status),), True)
            if not is_last:
                self.reset_when_sent(stream, 0)
            return
        call: Call
        if head.refusal is not None:
            call = RefusedCall(self, stream, head, head.refusal)
        elif self.is_reserved and CATEGORY_OF.get(head.path) != "health":
            call = RefusedCall(self, stream, head, (Status.UNAVAILABLE, NO_ROOM))
        elif self.engine.queued(0) > _MOST_QUEUED:
            text = f"more than {_MOST_QUEUED} bytes of answers wait to be taken on this connection"
            call = RefusedCall(self, stream, head, (Status.RESOURCE_EXHAUSTED, text))
        elif make is None:
            call = RefusedCall(self, stream, head, (Status.UNIMPLEMENTED, "Method not found!"))
        else:
            reason = port.guard.refusal(head.path, head.metadata) if port.guard is not None else None
            if reason is None:
                call = make(self, stream, head)
            else:
                call = RefusedCall(self, stream, head, (Status.UNAVAILABLE, reason))
        self._calls[stream] = call
        if head.timeout_s is not None:
            call.deadline = port.deadlines.add(call, head.timeout_s)
        call.begin()
        if is_last:
            call.on_data(b"", True)

    def on_data(self, stream: int, data: bytes, is_last: bool) -> None:
        """Bytes of a call have come."""
        call = self._calls.get(stream)
        if call is not None:
            call.on_data(data, is_last)
        else:
            self.consumed(stream, len(data))

    def on_reset(self, stream: int, code: int) -> None:
        """A client has cancelled a call."""
        call = self._calls.get(stream)
        if call is not None:
            call.on_gone()

    def on_closed(self, stream: int) -> None:
        """A stream is over."""
        call = self._calls.pop(stream, None)
        self._resets.pop(stream, None)
        if call is not None:
            call.on_closed()
            if not self._calls and self._lifetime is not None:
                self._lifetime.idle_since = self._loop.time()

    def on_ping(self) -> None:
        """A client has pinged."""
        if self._strikes.are_too_many(self._loop.time(), len(self._calls), self._sent_count):
            self.end(ErrorCode.ENHANCE_YOUR_CALM, TOO_MANY_PINGS)
            self._flush()
            self._close()

    def on_ping_answer(self, data: bytes) -> None:
        """A ping of this side has been answered."""
        if self._lifetime is not None:
            self._lifetime.answered()
        if data == _LEAVING and self.state is State.LEAVING:
            self.end()

    def on_settings(self) -> None:
        """The client speaks HTTP/2."""
        self.has_greeted = True

    # What calls call.

    def consumed(self, stream: int, byte_size: int) -> None:
        """Bytes have been read; the client may send as many more."""
        if byte_size and self.state is not State.LOST:
            self.engine.consumed(stream, byte_size)

    def sent(self) -> None:
        """Something of a call was sent: have it leave at the end of this turn of the loop."""
        self._sent_count += 1
        if not (self._is_flush_due or self._is_feeding):
            self._is_flush_due = True
            self._loop.call_soon(self._flush_now)

    def sent_now(self) -> None:
        """Something of calls was sent, and nothing else follows at once: have it leave."""
        self._sent_count += 1
        if not self._is_feeding:
            self._flush()

    def flush_soon(self) -> None:
        """Have what was sent leave at the end of this turn of the loop."""
        if not (self._is_flush_due or self._is_feeding):
            self._is_flush_due = True
            self._loop.call_soon(self._flush_now)

    def reset_when_sent(self, stream: int, code: int) -> None:
        """End a stream when all that was sent on it has left."""
        self._resets[stream] = code

    def tell_when_flushed(self, call: Call) -> None:
        """Call `on_flushed` once when bytes have left."""
        self._awaiting_flush[call] = None

    # Inside.

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or self._is_write_paused:
            return
        while True:
            pieces = self._take()
            if len(pieces) > 1:
                self._written_byte_size += sum(map(len, pieces))
                transport.writelines(pieces)
            elif pieces[0]:
                self._written_byte_size += len(pieces[0])
                transport.write(pieces[0])
            if len(pieces[-1]) < _PIECE:
                if not self._resets or not self._reset():
                    break
            elif self._is_write_paused:
                return
        if self._awaiting_flush:
            self._tell_flushed()
        if not self.engine.wants_io or (self.state is State.ENDING and not self._calls):
            self._close()

    def _take(self) -> list[bytes]:
        """The next pieces to write; a last one below `_PIECE` is all that can be sent for now."""
        drain = self.engine.drain
        pieces = [drain(_PIECE)]
        while len(pieces[-1]) == _PIECE and len(pieces) < _MOST_PIECES:
            pieces.append(drain(_PIECE))
        return pieces

    def _reset(self) -> bool:
        """Reset the streams on which all has been sent; whether there were any."""
        sent = [stream for stream in self._resets if not self.engine.queued(stream)]
        for stream in sent:
            self.engine.reset(stream, self._resets.pop(stream))
        return bool(sent)

    def _tell_flushed(self) -> None:
        waiting, self._awaiting_flush = self._awaiting_flush, {}
        for call in waiting:
            call.on_flushed()

    def _close(self) -> None:
        """Close when all that was written has been taken."""
        if self._transport is not None:
            self._transport.close()
