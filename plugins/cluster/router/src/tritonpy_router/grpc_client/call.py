"""A call to a replica, as its connection sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case and values; pseudo-headers come first."""
Piece: TypeAlias = bytes | bytearray | memoryview
"""Bytes that leave from where they are."""


class UpstreamCall(Protocol):
    """Takes what comes of one call; nothing more comes after `replica_over`."""

    def replica_headers(self, headers: Headers, is_last: bool) -> None:
        """The headers of the answer."""

    def replica_data(self, data: bytes) -> None:
        """Bytes of the answer; they are to be given back by `consumed`."""

    def replica_trailers(self, headers: Headers) -> None:
        """What follows the data."""

    def replica_over(self, code: int | None) -> None:
        """The stream is over: None if the connection was lost, else a code of HTTP/2, 0 for a proper end."""

    def replica_flushed(self) -> None:
        """Bytes have left; called once after `tell_when_flushed`."""


class UpstreamStream:
    """The stream of a call; whoever began the call keeps it, and only the connection looks into it.

    Args:
        call: is told what comes.
        window: bytes that the replica takes.
        room: bytes that it may send.

    Attributes:
        number: of the stream; 0 while it waits for the replica to take one more.
        block: its headers, while it waits.
        pieces: bytes that wait to leave.
        queued: how many those are.
        unreported: bytes that were consumed, and that the replica was not told of.
        has_headers: the answer has begun.
        is_ending: nothing more is sent behind what waits.
        is_sent: the last frame has been sent.
        is_over: nothing is sent or told any more.
    """

    __slots__ = (
        "block",
        "call",
        "has_headers",
        "is_ending",
        "is_over",
        "is_sent",
        "number",
        "pieces",
        "queued",
        "room",
        "unreported",
        "window",
    )

    def __init__(self, call: UpstreamCall, window: int, room: int) -> None:
        self.call = call
        self.window = window
        self.room = room
        self.number = 0
        self.block = b""
        self.pieces: deque[Piece] | None = None
        self.queued = 0
        self.unreported = 0
        self.has_headers = False
        self.is_ending = False
        self.is_sent = False
        self.is_over = False
