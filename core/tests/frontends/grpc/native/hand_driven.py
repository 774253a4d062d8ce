"""A client of one gRPC connection, without sockets: bytes go in by hand, time is virtual."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import hpack
from hyperframe import frame as frames
from tritonpy.admission import Admission
from tritonpy.frontends.grpc.native.connection import GrpcConnection
from tritonpy.frontends.grpc.native.engine import EngineSettings
from tritonpy.frontends.grpc.native.framing import PREFIX
from tritonpy.frontends.grpc.native.keepalive import Lifetimes
from tritonpy.frontends.grpc.native.server import NativeGrpcServer
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import ServerOptions
from tritonpy.shared_memory.registry import SharedMemoryRegions

from ...data_plane import FakeDataplane

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"

MUCH_WINDOW = (
    frames.SettingsFrame(settings={4: 1 << 30}),
    frames.WindowUpdateFrame(0, window_increment=1 << 30),
)
"""What a client sends that takes answers of any size."""

Headers = dict[str, str]


def _in_frames(sent: frames.Frame) -> list[frames.Frame]:
    most = EngineSettings().max_frame_size
    if not isinstance(sent, frames.DataFrame) or len(sent.data) <= most:
        return [sent]
    data, places = sent.data, range(0, len(sent.data), most)
    parts = [frames.DataFrame(sent.stream_id, data[place : place + most]) for place in places]
    parts[-1].flags |= sent.flags
    return parts


def message(body: bytes, flag: int = 0) -> bytes:
    """A message with its prefix."""
    return PREFIX.pack(flag, len(body)) + body


class HandTransport(asyncio.Transport):
    """Keeps what is written until a client takes it.

    Attributes:
        written: chunks, one for each write.
        is_reading, is_over: as the connection wants it.
        most_waiting: bytes beyond which the connection is asked to write no more.
        closes_when_empty: what was written is taken before the end, as it is over a socket.
        protocol: of the connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_reading = True
        self.is_over = False
        self.most_waiting: float = math.inf
        self.closes_when_empty = False
        self.protocol: asyncio.BufferedProtocol | None = None
        self._is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        if self.protocol and not self._is_paused and self.get_write_buffer_size() > self.most_waiting:
            self._is_paused = True
            self.protocol.pause_writing()

    def take(self) -> bytes:
        """All that was written, as the client receives it."""
        data = b"".join(self.written)
        self.written.clear()
        if self._is_paused and self.protocol:
            self._is_paused = False
            self.protocol.resume_writing()
        return data

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        if self.closes_when_empty and self.written:
            self.is_over = True
        else:
            self.abort()

    def abort(self) -> None:
        self.is_over = True
        if self.protocol:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
            self.protocol = None


@dataclass
class Answer:
    """What a client has received on one stream."""

    headers: list[Headers] = field(default_factory=list)
    data: bytes = b""
    is_complete: bool = False
    reset: int | None = None

    @property
    def status(self) -> tuple[int, str]:
        """The code and the details that the call has ended with."""
        last = self.headers[-1]
        return int(last["grpc-status"]), last.get("grpc-message", "")


class Client:
    """Speaks raw HTTP/2 to a connection of a server that does not listen.

    Args:
        limits: of connections; all others are none.
        options: of the server.

    Attributes:
        dataplane: what the server asks.
        answers: by stream.
        frames: all that was received but settings and window updates of both.
    """

    def __init__(self, limits: dict[str, Any] | None = None, **options: Any) -> None:
        self.dataplane = FakeDataplane()
        self.admission = Admission(options.pop("max_inflight_byte_size", 0))
        services = FrontendServices(self.admission, SharedMemoryRegions(is_allowed=True))
        self.server = NativeGrpcServer(self.dataplane, services, ServerOptions((), **options))
        self.port = self.server.listener.shared
        nothing = Lifetimes(math.inf, math.inf, math.inf, math.inf, 20, False, 2, 300, 2)
        self.port.lifetimes = replace(nothing, **limits or {})
        self.connection = GrpcConnection(self.port)
        self.transport = HandTransport()
        self.transport.protocol = self.connection
        self.answers: dict[int, Answer] = {}
        self.frames: list[frames.Frame] = []
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._received = b""
        self._stream = -1
        self.connection.connection_made(self.transport)

    @classmethod
    def greeted(cls, limits: dict[str, Any] | None = None, **options: Any) -> Client:
        """A client that has said that it speaks HTTP/2."""
        client = cls(limits, **options)
        client.greet()
        return client

    def greet(self) -> None:
        """Say that it speaks HTTP/2."""
        self.feed(PREFACE)
        self.send(frames.SettingsFrame(settings={}), frames.SettingsFrame(flags=["ACK"]))

    def feed(self, data: bytes) -> None:
        """Have bytes arrive."""
        scratch = self.connection.get_buffer(-1)
        assert len(data) <= len(scratch)
        scratch[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def send(self, *sent: frames.Frame) -> None:
        """Have frames arrive, in one read; data that is too long for one frame comes in several."""
        self.feed(b"".join(part.serialize() for each in sent for part in _in_frames(each)))

    def headers(self, path: str = INFER, is_last: bool = False, **more: str) -> frames.Frame:
        """The frame that opens a stream; the names of more headers have _ for -."""
        self._stream += 2
        pairs = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        opened = frames.HeadersFrame(self._stream, self._encoder.encode(list(pairs.items())))
        opened.flags.add("END_HEADERS")
        if is_last:
            opened.flags.add("END_STREAM")
        return cast(frames.Frame, opened)

    def data(self, data: bytes, is_last: bool = True, stream: int = 0) -> frames.Frame:
        """A frame of data for the stream that was opened last, or another."""
        sent = frames.DataFrame(stream or self._stream, data)
        if is_last:
            sent.flags.add("END_STREAM")
        return cast(frames.Frame, sent)

    def reset(self, code: int = 8) -> frames.Frame:
        """The frame that cancels the last stream."""
        return cast(frames.Frame, frames.RstStreamFrame(self._stream, code))

    def call(self, path: str, body: bytes, **more: str) -> int:
        """Make a call with one message; returns its stream."""
        self.send(self.headers(path, **more), self.data(message(body)))
        return self._stream

    def take(self) -> list[frames.Frame]:
        """Take all that was written; returns the frames that came with it."""
        self._received += self.transport.take()
        came: list[frames.Frame] = []
        while len(self._received) >= 9:
            head, length = frames.Frame.parse_frame_header(memoryview(self._received[:9]))
            if len(self._received) < 9 + length:
                break
            head.parse_body(memoryview(self._received[9 : 9 + length]))
            self._received = self._received[9 + length :]
            came.append(head)
            self._note(head)
        self.frames += came
        return came

    def answer(self, stream: int = 0) -> Answer:
        """What was received on the last stream, or another."""
        self.take()
        return self.answers.setdefault(stream or self._stream, Answer())

    def _note(self, came: frames.Frame) -> None:
        answer = self.answers.setdefault(came.stream_id, Answer())
        if isinstance(came, frames.HeadersFrame):
            answer.headers.append({str(name): str(value) for name, value in self._decoder.decode(came.data)})
        elif isinstance(came, frames.DataFrame):
            answer.data += came.data
        elif isinstance(came, frames.RstStreamFrame):
            answer.reset = came.error_code
        if "END_STREAM" in came.flags:
            answer.is_complete = True
