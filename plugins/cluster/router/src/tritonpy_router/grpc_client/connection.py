"""One connection to the gRPC port of a replica: what its engine makes of bytes, and when those leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from tritonpy_router.grpc_client.call import Piece, UpstreamCall, UpstreamStream
from tritonpy_router.grpc_client.engine import ClientEngine
from tritonpy_router.grpc_client.header_blocks import BlockReader
from tritonpy_router.grpc_client.http2 import CANCEL, ConnectionBroken

_RESETS_AT_ONCE, _RESETS_PER_S = 100.0, 25.0
"""Calls that are cancelled at once, and per second after that: servers end a connection for more."""
_MOST_AT_ONCE = 512 * 1024
"""Bytes of one write; more would wake the replica less often, for more."""
_JOIN_BELOW = 16 * 1024


class GrpcUpstream(asyncio.BufferedProtocol):
    """One connection to a replica; on the loop only.

    Args:
        scratch: where bytes are received; one for all where a read is complete before the next begins.
        lead: the block of the headers that all its calls begin with.
        blocks: reads the headers of answers.
        on_close: called when it takes no more calls.
        on_lost: called when it is over.
        on_turn: called when what has come was told to calls.
    """

    __slots__ = (
        "_awaiting_flush",
        "_engine",
        "_greeting",
        "_is_coalescing",
        "_is_feeding",
        "_is_flush_due",
        "_is_write_paused",
        "_lead",
        "_loop",
        "_on_close",
        "_on_lost",
        "_on_turn",
        "_resets_at",
        "_resets_left",
        "_scratch",
        "_transport",
    )

    def __init__(
        self,
        scratch: memoryview,
        lead: bytes,
        blocks: BlockReader,
        on_close: Callable[[GrpcUpstream], None],
        on_lost: Callable[[GrpcUpstream], None],
        on_turn: Callable[[], None],
    ) -> None:
        self._scratch = scratch
        self._lead = lead
        self._on_close: Callable[[GrpcUpstream], None] | None = on_close
        self._on_lost = on_lost
        self._on_turn = on_turn
        self._loop = asyncio.get_running_loop()
        self._is_coalescing = type(self._loop).__module__.startswith("uvloop")
        self._transport: asyncio.Transport | None = None
        self._awaiting_flush: dict[UpstreamCall, None] = {}
        self._is_flush_due = False
        self._is_feeding = False
        self._is_write_paused = False
        self._resets_left = _RESETS_AT_ONCE
        self._resets_at = self._loop.time()
        self._engine = ClientEngine(blocks, self._retire)
        self._greeting: asyncio.Future[None] | None = None

    async def greeted(self) -> None:
        """Wait until the replica has said how many calls it takes at a time: it would refuse those above.

        Raises:
            ConnectionError: it ends the connection instead.
        """
        if not self._engine.is_greeted and self._transport is not None:
            self._greeting = self._loop.create_future()
            await self._greeting
        if not self.is_open:
            raise ConnectionResetError("the connection ended as soon as it was made")

    @property
    def is_open(self) -> bool:
        """Whether calls can be begun."""
        transport = self._transport
        return transport is not None and self._engine.takes_calls and not transport.is_closing()

    @property
    def has_place(self) -> bool:
        """Whether a call would begin at once."""
        return self._engine.has_place

    @property
    def call_count(self) -> int:
        """Calls that are open."""
        return self._engine.call_count

    def begin(self, block: bytes, call: UpstreamCall) -> UpstreamStream:
        """Begin a call.

        Args:
            block: its headers, but for those that all calls begin with: the path and what follows it.
            call: is told what comes.

        Raises:
            ConnectionError: the connection takes none any more.
        """
        if not self.is_open:
            raise ConnectionResetError("the connection has just ended")
        stream = self._engine.begin(self._lead + block, call)
        self._flush_soon()
        return stream

    def ask(self, block: bytes, message: Sequence[Piece], call: UpstreamCall) -> UpstreamStream:
        """Begin a call of one message.

        Args:
            block: as for `begin`.
            message: with its prefix.
            call: is told what comes.

        Raises:
            ConnectionError: the connection takes none any more.
        """
        transport = self._transport
        if transport is None or not self.is_open:
            raise ConnectionResetError("the connection has just ended")
        engine = self._engine
        is_idle = not (engine.has_more or self._is_write_paused)
        stream = engine.ask(self._lead + block, message, call)
        if is_idle and self._is_coalescing and stream.is_sent:
            # The loop writes what was written in one turn at its end, sooner than `call_soon` would have.
            transport.write(engine.out.pop())
        else:
            self._flush_soon()
        return stream

    def data(self, stream: UpstreamStream, data: Piece, is_last: bool = False) -> None:
        """Send bytes of a call; those of one that is over are dropped."""
        self._engine.data(stream, data)
        if is_last:
            self._engine.end(stream)
        self._flush_soon()

    def end(self, stream: UpstreamStream) -> None:
        """Send nothing more of a call."""
        self._engine.end(stream)
        self._flush_soon()

    def cancel(self, stream: UpstreamStream) -> None:
        """The answer of a call is not wanted any more; its `UpstreamCall` hears nothing more."""
        engine = self._engine
        before = len(engine.cancelled)
        engine.cancel(stream)
        if not before and engine.cancelled:
            self._reset_some()

    def consumed(self, stream: UpstreamStream, byte_size: int) -> None:
        """Let the replica send so much more."""
        engine = self._engine
        engine.consumed(stream, byte_size)
        if engine.out:
            self._flush_soon()

    def tell_when_flushed(self, call: UpstreamCall) -> None:
        """Call `replica_flushed` once when bytes have left."""
        self._awaiting_flush[call] = None

    def close(self) -> None:
        """Close when the calls that are open are over."""
        if not self._engine.call_count:
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
        self._engine.start()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, and so are its calls."""
        self._transport = None
        self._end_greeting()
        self._retire()
        self._on_lost(self)
        self._awaiting_flush.clear()
        for call in self._engine.lose():
            call.replica_over(None)
        self._on_turn()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._transport is None:
            return
        self._is_feeding = True
        try:
            self._engine.feed(self._scratch[:nbytes])
        except ConnectionBroken as exc:
            self._engine.goaway(exc.code)
            self._is_feeding = False
            self._flush()
            self._retire()
            self._transport.abort()  # to close would wait for a replica that may read nothing
            return
        finally:
            self._is_feeding = False
            self._on_turn()
        engine = self._engine
        if self._greeting is not None and engine.is_greeted:
            self._end_greeting()
        if engine.has_more or self._awaiting_flush or self._on_close is None:
            self._flush()

    def pause_writing(self) -> None:
        """The replica reads slowly: what is sent stays in the engine."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """The replica has caught up."""
        self._is_write_paused = False
        self._flush()

    # Inside.

    def _end_greeting(self) -> None:
        greeting, self._greeting = self._greeting, None
        if greeting is not None and not greeting.done():
            greeting.set_result(None)

    def _reset_some(self) -> None:
        """Reset as many streams as the replica lets a connection, and others a little later."""
        now_s = self._loop.time()
        refilled = self._resets_left + (now_s - self._resets_at) * _RESETS_PER_S
        self._resets_left, self._resets_at = min(_RESETS_AT_ONCE, refilled), now_s
        cancelled = self._engine.cancelled
        while cancelled and self._resets_left >= 1:
            self._resets_left -= 1
            self._engine.reset(next(iter(cancelled)), CANCEL)
        if cancelled and self._transport is not None:
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
        if transport is None:
            return
        engine = self._engine
        while engine.has_more and not self._is_write_paused:
            pieces = engine.take(_MOST_AT_ONCE)
            if not pieces:
                break
            if len(pieces) == 1:
                transport.write(pieces[0])
            elif sum(map(len, pieces)) <= _JOIN_BELOW:
                transport.write(b"".join(pieces))
            else:
                transport.writelines(pieces)
        if self._awaiting_flush and not self._is_write_paused:
            waiting, self._awaiting_flush = self._awaiting_flush, {}
            for call in waiting:
                call.replica_flushed()
        if self._on_close is None and not engine.call_count:
            self._close()

    def _retire(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(self)

    def _close(self) -> None:
        self._retire()
        if self._transport is not None:
            self._transport.close()
