"""The interface of an HTTP/2 engine, the state of one connection without any input or output.

An engine frames, compresses headers, keeps windows and refuses what breaks the protocol. All that is gRPC
stands above it and is the same for every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case and values; pseudo-headers come first."""


class EngineError(Exception):
    """The connection cannot go on: its client breaks the protocol, or exceeds a limit."""


class StreamGone(Exception):
    """A stream is over, nothing can be sent on it."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings that a server announces to its clients, and the limits of its engine.

    Attributes:
        max_concurrent_streams: that a client may have open.
        stream_window: bytes of a stream that a client may send before it is given more room.
        connection_window: likewise, of all streams together; some that are read slowly leave room for others.
        max_frame_size: bytes of one frame that clients may send; less than one read brings, for the engine
            puts together what comes in several.
        max_header_list_size: bytes of the headers of a stream that clients are asked to stay within, names,
            values and 32 for each.
        most_header_list_size: the connection of a client that goes beyond this ends.
    """

    max_concurrent_streams: int = 1024
    stream_window: int = 4 << 20
    connection_window: int = 1 << 26
    max_frame_size: int = 64 * 1024
    max_header_list_size: int = 16 * 1024
    most_header_list_size: int = 64 * 1024


class Receiver(Protocol):
    """Is told what an engine has understood, while it is fed."""

    def on_request(self, stream: int, headers: Headers, is_last: bool) -> None:
        """A client has opened a stream; it sends nothing more on it if `is_last`."""

    def on_data(self, stream: int, data: bytes, is_last: bool) -> None:
        """Bytes of a stream; each must be returned by `consumed`."""

    def on_reset(self, stream: int, code: int) -> None:
        """A client wants nothing more of a stream."""

    def on_closed(self, stream: int) -> None:
        """A stream is over, however it ended."""

    def on_ping(self) -> None:
        """A client has pinged; it will be answered."""

    def on_ping_answer(self, data: bytes) -> None:
        """A ping of this side is answered; `data` are the eight bytes it had."""

    def on_settings(self) -> None:
        """A client has told its settings, which it does first of all."""


class Engine(Protocol):
    """One connection's protocol state, the server's side.

    What is sent waits inside until `drain`. A stream that is gone takes and ignores resets; everything else
    that is sent on it raises `StreamGone`.
    """

    def start(self, settings: EngineSettings) -> None:
        """Begin the connection."""

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes from the client, and tell the receiver what they mean.

        Raises:
            EngineError: the connection must end, after what `drain` gives has been sent.
        """

    def headers(self, stream: int, headers: Headers, is_last: bool = False) -> None:
        """Send the headers of an answer."""

    def data(self, stream: int, data: bytes | memoryview) -> None:
        """Send bytes; they are taken over, and leave as the client's windows allow."""

    def trailers(self, stream: int, headers: Headers) -> None:
        """Send what follows the data, and end the stream from this side."""

    def reset(self, stream: int, code: int) -> None:
        """End a stream at once; what waits to be sent on it is dropped."""

    def consumed(self, stream: int, byte_size: int) -> None:
        """Let the client send so much more, on the stream and on the connection."""

    def queued(self, stream: int) -> int:
        """Bytes of a stream, or of all where it is 0, that wait for the client's windows or for `drain`."""

    def window(self, stream: int) -> int:
        """Bytes of a stream that the client's windows have room for; 0 if the stream is gone."""

    def ping(self, data: bytes) -> None:
        """Send eight bytes that the client sends back."""

    def shutdown_notice(self, text: bytes = b"") -> None:
        """Tell the client to open no more streams, and why; those on their way are still taken."""

    def goaway(self, code: int, text: bytes = b"") -> None:
        """Tell the client that streams which have not arrived yet never will be answered."""

    def drain(self, most: int) -> bytes:
        """Bytes that can be sent now, `most` where there are so many."""

    @property
    def wants_io(self) -> bool:
        """True while anything more can come of the connection."""

    def close(self) -> None:
        """Forget all that waits, and the receiver: the connection is over."""


EngineFactory: TypeAlias = Callable[[Receiver], Engine]
"""Makes the engine of a connection."""


class ErrorCode:
    """Codes of HTTP/2 that are sent here (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    REFUSED_STREAM = 7
    CANCEL = 8
    ENHANCE_YOUR_CALM = 11
