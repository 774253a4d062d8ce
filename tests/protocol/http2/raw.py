"""HTTP/2 frame by frame: written as right or wrong as a test wants them, and read one at a time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

FRAME_SIZE = 16_384
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TIMEOUT_S = 30

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE, ENABLE_CONNECT_PROTOCOL, NO_RFC7540_PRIORITIES = 6, 8, 9

ERRORS = """
    NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR
    REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM
    INADEQUATE_SECURITY HTTP_1_1_REQUIRED
""".split()  # noqa: SIM905

Headers: TypeAlias = "Sequence[tuple[str, str] | tuple[bytes, bytes]]"

SERVICE = "/inference.GRPCInferenceService/"
EMPTY_MESSAGE = bytes(5)


def frame(
    kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None
) -> bytes:
    """A frame, as wrong as it is told; `length` is what its head says of a payload that has another."""
    size = len(payload) if length is None else length
    return struct.pack(">IBI", size << 8 | kind, flags, stream) + payload


def request_headers(method: str = "ServerLive", **more: str) -> list[tuple[str, str]]:
    """Of a call of our service; keywords replace or add headers, and leave out those that are ""."""
    named = {key.replace("_", "-"): value for key, value in more.items()}
    pseudo = {"method": "POST", "scheme": "http", "path": SERVICE + method, "authority": "test"}
    for name in pseudo:
        pseudo[name] = named.pop(name, pseudo[name])
    headers = [(f":{name}", value) for name, value in pseudo.items() if value]
    plain = {"content-type": "application/grpc", "te": "trailers", **named}
    return headers + [(name, value) for name, value in plain.items() if value]


def block(headers: Headers, huffman: bool = False) -> bytes:
    """A header block that needs nothing of the dynamic table but what it adds itself."""
    encoded: bytes = Encoder().encode(headers, huffman=huffman)
    return encoded


def headers(stream: int, fields: Headers, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(fields))


def data(stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """A frame of data, or several of a size that every server takes."""
    parts = [payload[at : at + FRAME_SIZE] for at in range(0, len(payload), FRAME_SIZE)]
    *first, last = parts or [b""]
    return b"".join(frame(DATA, 0, stream, part) for part in first) + frame(DATA, flags, stream, last)


def message(payload: bytes = b"", flag: int = 0, length: int | None = None) -> bytes:
    """A message of gRPC with its prefix."""
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


def settings(*values: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *value) for value in values))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def reset(stream: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def ping(payload: bytes = b"01234567", flags: int = 0) -> bytes:
    return frame(PING, flags, 0, payload)


def call(stream: int = 1, body: bytes = EMPTY_MESSAGE, method: str = "ServerLive", **more: str) -> bytes:
    """A whole unary call."""
    return headers(stream, request_headers(method, **more)) + data(stream, body, END_STREAM)


class Closed(Exception):
    """The server has closed the connection."""


class Http2Client:
    """One connection that is written to and read from frame by frame; nothing is sent or answered by itself.

    Args:
        port: on this machine.
        tls: how to speak TLS; None for plain HTTP/2.

    Attributes:
        peer_settings: what the server has announced so far, by number.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.peer_settings: dict[int, int] = {}
        self.decoder = Decoder()
        self._stream = self.socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        """Send bytes; the end of the connection is found by who reads."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(b"".join(pieces))

    def greet(self, *values: tuple[int, int]) -> None:
        """Begin the connection with these settings, and take those of the server."""
        self.send(PREFACE, settings(*values))
        first = self.frame()
        assert isinstance(first, SettingsFrame), first
        self.send(frame(SETTINGS, ACK))

    def frame(self) -> Frame:
        """The next frame.

        Raises:
            Closed: there is none.
        """
        try:
            head = self._stream.read(9)
            if len(head) < 9:
                raise Closed
            found, length = Frame.parse_frame_header(memoryview(head))
            found.parse_body(memoryview(self._stream.read(length)))
        except ConnectionResetError:
            raise Closed from None
        if isinstance(found, SettingsFrame):
            self.peer_settings |= found.settings
        return found

    def frames(self) -> Iterator[Frame]:
        """All frames until the server closes the connection."""
        with contextlib.suppress(Closed):
            while True:
                yield self.frame()

    def answer(self, stream: int = 1) -> Answer:
        """Everything that comes for a stream until it or the connection ends."""
        answer = Answer()
        for found in self.frames():
            answer.take(found, stream, self.decoder)
            if answer.is_over:
                break
        return answer

    def pong(self, payload: bytes = b"are you?") -> list[Frame]:
        """Ask for a sign of life; return what came before it."""
        self.send(ping(payload))
        before: list[Frame] = []
        for found in self.frames():
            if isinstance(found, PingFrame) and found.opaque_data == payload and "ACK" in found.flags:
                return before
            before.append(found)
        raise AssertionError(f"no answer to a ping, but {len(before)} frames, the last {before[-1:]}")

    def end(self) -> GoAwayFrame | None:
        """The last GOAWAY before the server closes the connection, which it must."""
        last = None
        for found in self.frames():
            if isinstance(found, GoAwayFrame):
                last = found
        return last

    def half_close(self) -> None:
        """Send nothing more, but go on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._stream.close()
        self.socket.close()


class Answer:
    """What a server sent for one stream.

    Attributes:
        headers: each header block, as pairs in order; header blocks of other streams are only decoded.
        body: of all DATA frames.
        reset: the code of RST_STREAM, by name; "" for none.
        goaway: the code of a GOAWAY, by name, with its debug data; "" for none.
        frames: of the stream, in words: their kinds in order.
        is_ended: END_STREAM was seen.
    """

    def __init__(self) -> None:
        self.headers: list[list[tuple[str, str]]] = []
        self.body = b""
        self.reset = ""
        self.goaway = ""
        self.debug = b""
        self.frames: list[str] = []
        self.is_ended = False
        self._block = b""

    @property
    def is_over(self) -> bool:
        return self.is_ended or bool(self.reset)

    @property
    def fields(self) -> dict[str, str]:
        """The headers of all blocks, later ones over earlier ones."""
        return dict(pair for pairs in self.headers for pair in pairs)

    @property
    def status(self) -> int | None:
        """The gRPC status; None where there is none."""
        text = self.fields.get("grpc-status")
        return None if text is None else int(text)

    @property
    def text(self) -> str:
        """The message of the status, as it came."""
        return self.fields.get("grpc-message", "")

    @property
    def messages(self) -> list[bytes]:
        """The messages of gRPC in the body."""
        found, at = [], 0
        while at < len(self.body):
            end = at + 5 + int.from_bytes(self.body[at + 1 : at + 5])
            found.append(self.body[at + 5 : end])
            at = end
        return found

    def take(self, found: Frame, stream: int, decoder: Decoder) -> None:
        """Take a frame that has come."""
        if isinstance(found, WindowUpdateFrame):
            return
        is_ours = found.stream_id == stream
        if is_ours:
            self.frames.append(type(found).__name__.removesuffix("Frame"))
        match found:
            case HeadersFrame() | ContinuationFrame():
                self._block += found.data
                if "END_HEADERS" in found.flags:
                    pairs = decoder.decode(self._block)
                    self._block = b""
                    if is_ours:
                        self.headers.append([(_text(name), _text(value)) for name, value in pairs])
            case DataFrame() if is_ours:
                self.body += found.data
            case RstStreamFrame() if is_ours:
                self.reset = error_name(found.error_code)
            case GoAwayFrame():
                self.goaway, self.debug = error_name(found.error_code), found.additional_data
        if is_ours and "END_STREAM" in found.flags:
            self.is_ended = True


def error_name(code: int) -> str:
    return ERRORS[code] if code < len(ERRORS) else str(code)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
