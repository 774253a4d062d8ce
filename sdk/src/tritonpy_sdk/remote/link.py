"""One end of a connection between a program and a server; on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from tritonpy.plugin import JsonObject

from tritonpy_sdk.remote.wire import MOST_HEAD_BYTES, BadFrame, Frame, FrameReader, encode

_PINGS = 3  # in the time after which silence is the end


class LinkOwner(Protocol):
    """Who speaks over a link; called on the loop."""

    def connected(self) -> None:
        """Frames may be sent from now on."""

    def received(self, frame: Frame) -> None:
        """Take a frame.

        Raises:
            BadFrame: it is none that belongs here; the link ends.
        """

    def lost(self, reason: str) -> None:
        """The link has ended, for a reason in words; called once, also for `close`."""


class Link(asyncio.BufferedProtocol):
    """A connection with frames in both directions; a side that is silent for too long is given up.

    Args:
        owner: who speaks.

    Attributes:
        reader: cuts what comes into frames; for its limits.
        peer: the address of the other side, for the log.
    """

    def __init__(self, owner: LinkOwner) -> None:
        self.reader = FrameReader()
        self.peer = ""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._is_over = False
        self._silence_s = 0.0
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def send(self, head: JsonObject, parts: Sequence[bytes | bytearray | memoryview] = ()) -> None:
        """Send a frame; nothing happens where the link has ended."""
        transport = self._transport
        if transport is None or self._is_over or transport.is_closing():
            return
        for buffer in encode(head, parts):
            transport.write(buffer)

    def open(self, most_data_bytes: int, silence_s: float) -> None:
        """The other side may stay: allow large frames, and see to it that it lives.

        Args:
            most_data_bytes: of one frame.
            silence_s: after which the other side is given up; both send something more often.
        """
        self.reader.most_head_bytes = MOST_HEAD_BYTES
        self.reader.most_data_bytes = most_data_bytes
        self._silence_s = silence_s
        self._watch()

    def close(self, reason: str, *, at_once: bool = False) -> None:
        """End the link.

        Args:
            reason: for the owner.
            at_once: also what was sent and not written yet is dropped.
        """
        self._reason = self._reason or reason
        transport = self._transport
        if transport is None or self._is_over:
            return
        if at_once:
            transport.abort()
        else:
            transport.close()

    # For the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not say so
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) > 1 else "a local socket"
        self._heard_s = asyncio.get_running_loop().time()
        self._owner.connected()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts bytes."""
        return self.reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self._heard_s = asyncio.get_running_loop().time()
        if self._reason:
            return  # it is being closed
        try:
            for frame in self.reader.filled(nbytes):
                self._owner.received(frame)
                if self._reason:
                    return
        except BadFrame as exc:
            self.close(str(exc), at_once=True)

    def eof_received(self) -> None:
        """The other side sends nothing more."""
        return None  # the loop closes the transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        ended = "the other side has closed the connection"
        self._owner.lost(self._reason or (f"{type(exc).__name__}: {exc}" if exc is not None else ended))

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._heard_s > self._silence_s:
            self.close(f"nothing came for {self._silence_s:g} s", at_once=True)
            return
        self.send({"kind": "ping"})
        self._timer = loop.call_later(self._silence_s / _PINGS, self._watch)
