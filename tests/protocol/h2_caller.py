"""One gRPC call on a connection of its own, with headers and bytes as no client would send them.

The outcome has all that came back: a client shows only what it understands.
"""

from __future__ import annotations

import gzip
import socket
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
from tritonpy_sdk.testing import DEADLINE_S

Headers = tuple[tuple[str, str], ...]

USUAL: Headers = (("content-type", "application/grpc"), ("te", "trailers"))
_INFLATED = {"gzip": gzip.decompress, "deflate": zlib.decompress, "identity": bytes}


@dataclass(frozen=True)
class Ask:
    """What is sent.

    Attributes:
        path: of the call.
        body: of all its messages, each with its five bytes before it.
        headers: after the pseudo headers.
        method: of HTTP.
        ends: where the client says that nothing more comes: `with headers`, `with data`, in an `empty` frame,
            or `never`.
    """

    path: str
    body: bytes = b""
    headers: Headers = USUAL
    method: str = "POST"
    ends: str = "with data"


@dataclass
class Outcome:
    """What came back.

    Attributes:
        headers: the first ones, by name; all there are where the call ends with them.
        messages: those of the call, inflated.
        compressed: of each message whether it was.
        trailers: the last headers, by name; None where there were no others than the first.
        reset: the error code of the stream's end, if it was reset before it had ended.
        went_away: the error code with which the connection ended, if it did before the stream had.
    """

    headers: dict[str, str] | None = None
    messages: list[bytes] = field(default_factory=list)
    compressed: list[bool] = field(default_factory=list)
    trailers: dict[str, str] | None = None
    reset: str = ""
    went_away: str = ""

    @property
    def status(self) -> str:
        """gRPC's status and its text, as they were sent."""
        last = self.trailers if self.trailers is not None else self.headers or {}
        return f"{last.get('grpc-status', '')} {last.get('grpc-message', '')}".strip()


def framed(message: bytes, flag: int = 0) -> bytes:
    """A message with its five bytes before it."""
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


class H2Caller:
    """A connection for one call.

    Args:
        port: on this machine.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        config = h2.config.H2Configuration(
            client_side=True,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=False,
            header_encoding="utf-8",
        )
        self._connection = h2.connection.H2Connection(config)
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(2**24)
        self._received = b""  # and not taken
        self._body = b""

    def call(self, ask: Ask) -> Outcome:
        """Send it and read until its end."""
        stream = self._connection.get_next_available_stream_id()
        pseudo = ((":method", ask.method), (":scheme", "http"), (":path", ask.path), (":authority", "test"))
        self._connection.send_headers(stream, (*pseudo, *ask.headers), end_stream=ask.ends == "with headers")
        left = memoryview(ask.body)
        outcome = Outcome()
        is_over = False
        has_ended = ask.ends in ("with headers", "never")
        while not is_over:
            try:
                window = self._connection.local_flow_control_window(stream)
                while left and window:
                    size = min(len(left), window, self._connection.max_outbound_frame_size)
                    ends = ask.ends == "with data" and size == len(left)
                    self._connection.send_data(stream, bytes(left[:size]), end_stream=ends)
                    has_ended = has_ended or ends
                    left, window = left[size:], window - size
                if not left and not has_ended:
                    self._connection.end_stream(stream)
                    has_ended = True
            except h2.exceptions.StreamClosedError:
                left, has_ended = memoryview(b""), True
            is_over = self._exchange(stream, outcome)
        self._read_messages(outcome)
        return outcome

    def _exchange(self, stream: int, outcome: Outcome) -> bool:
        """Send what is due and take what comes; True when nothing more can come."""
        try:
            self._socket.sendall(self._connection.data_to_send())
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            outcome.went_away = outcome.went_away or "closed"
            return True
        self._received += data
        is_over = False
        while (frame := self._next_frame()) and not is_over:
            try:
                events = self._connection.receive_data(frame)
            except h2.exceptions.StreamClosedError:  # a stream that has ended may be reset besides
                continue
            is_over = any([self._take(event, stream, outcome) for event in events])  # noqa: C419  # takes all
        return is_over

    def _next_frame(self) -> bytes:
        """The next one that is there as a whole, or nothing."""
        size = 9 + int.from_bytes(self._received[:3], "big")
        if len(self._received) < size:
            return b""
        frame, self._received = self._received[:size], self._received[size:]
        return frame

    def _take(self, event: Any, stream: int, outcome: Outcome) -> bool:  # Any: h2's events have no base class
        if isinstance(event, h2.events.ConnectionTerminated):
            outcome.went_away = _name(event.error_code)
            return event.last_stream_id is not None and event.last_stream_id < stream
        if getattr(event, "stream_id", None) != stream:
            return False
        match event:
            case h2.events.ResponseReceived():
                outcome.headers = dict(event.headers)
            case h2.events.TrailersReceived():
                outcome.trailers = dict(event.headers)
            case h2.events.DataReceived():
                self._body += event.data
                self._connection.acknowledge_received_data(event.flow_controlled_length, stream)
            case h2.events.StreamEnded():
                return True
            case h2.events.StreamReset():
                outcome.reset = _name(event.error_code)
                return True
        return False

    def _read_messages(self, outcome: Outcome) -> None:
        encoding = (outcome.headers or {}).get("grpc-encoding", "identity")
        while len(self._body) >= 5:
            is_compressed, size = bool(self._body[0]), int.from_bytes(self._body[1:5], "big")
            message, self._body = self._body[5 : 5 + size], self._body[5 + size :]
            outcome.compressed.append(is_compressed)
            outcome.messages.append(_INFLATED[encoding](message) if is_compressed else message)

    def close(self) -> None:
        self._socket.close()


def call(port: int, ask: Ask) -> Outcome:
    """One call on a connection of its own."""
    caller = H2Caller(port)
    try:
        return caller.call(ask)
    finally:
        caller.close()


def with_headers(*more: tuple[str, str], without: Sequence[str] = ()) -> Headers:
    """The usual headers, with and without some."""
    replaced = {name for name, _ in more} | set(without)
    return (*((name, value) for name, value in USUAL if name not in replaced), *more)


def _name(code: int | None) -> str:
    try:
        return h2.errors.ErrorCodes(code).name
    except ValueError:
        return str(code)
