"""A gRPC connection in memory: bytes of a client in, answers out, and nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

from tritonclient.grpc import service_pb2
from tritonpy.admission import Admission
from tritonpy.errors import NotFound
from tritonpy.frontends.grpc.native.connection import GrpcConnection
from tritonpy.frontends.grpc.native.server import NativeGrpcServer
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import ServerOptions
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.shared_memory.registry import SharedMemoryRegions

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
MOST_HELD = 100_000
_TURNS = 6  # of the loop, after which nothing is left to do


class _Model:
    """Answers at once, or, where it is called `late`, when the connection is over."""

    is_decoupled = False
    config: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, name: str, held: list[tuple[InferRequest, ResponseSink]]) -> None:
        self._name = name
        self._held = held

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        if self._name == "late":
            self._held.append((request, sink))
        else:
            sink.on_response(request, InferResponse(), True)


class _Dataplane:
    """Knows the models `m` and `late`."""

    def __init__(self) -> None:
        self.held: list[tuple[InferRequest, ResponseSink]] = []

    def is_live(self) -> bool:
        return True

    is_ready = is_live

    async def model_ready(self, name: str, version: str = "") -> bool:
        return True

    def find(self, name: str, version: str = "") -> _Model:
        if name not in ("m", "late"):
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        return _Model(name, self.held)

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object) -> Any:
            raise NotFound(name)

        return refuse


class _Transport(asyncio.Transport):
    """Takes what is written; a client that reads nothing has it wait after a few kilobytes."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_over = False
        self.written = 0
        self._is_slow = is_slow
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None:
        self.written += len(data)
        if self._is_slow and self.written > 4096 and self.protocol is not None:
            self.protocol.pause_writing()

    def close(self) -> None:
        self.is_over = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_over


class Talk:
    """A server without a port, to which connections are made of bytes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._note)
        self._errors: list[BaseException] = []
        self._dataplane = _Dataplane()
        self._admission = Admission(MOST_HELD)
        services = FrontendServices(self._admission, SharedMemoryRegions(is_allowed=True))
        self._server: Any = NativeGrpcServer(self._dataplane, services, ServerOptions(()))  # type: ignore[arg-type]

    def hear(self, data: bytes) -> None:
        """Make a connection of bytes, the first of which says how they come; it leaves nothing behind.

        Raises:
            AssertionError: something of it is still held.
            Exception: what the server did not catch.
        """
        self._loop.run_until_complete(self._hear(data))
        if self._errors:
            raise self._errors.pop()
        assert self._admission.held == 0, self._admission.held

    async def _hear(self, data: bytes) -> None:
        how, sent = data[:1] or b"\0", data[1:]
        transport = _Transport(is_slow=bool(how[0] & 2))
        connection = GrpcConnection(self._server.listener.shared)
        transport.protocol = connection
        connection.connection_made(transport)
        if not how[0] & 1:
            sent = PREFACE + sent
        size = (how[0] >> 2) * 7 or len(sent) or 1
        for at in range(0, len(sent), size):
            if transport.is_over:
                break
            piece = sent[at : at + size]
            connection.get_buffer(len(piece))[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            await asyncio.sleep(0)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for request, sink in self._dataplane.held:
            sink.on_response(request, InferResponse(), True)
        self._dataplane.held.clear()

    def _note(self, _: object, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or RuntimeError(context["message"]))


def seeds() -> list[bytes]:
    """Whole calls, one after the other and cut into pieces, and streams that break the rules."""
    infer = service_pb2.ModelInferRequest(model_name="m", id="7", raw_input_contents=[bytes(8)])
    infer.inputs.add(name="IN", datatype="INT32", shape=[1, 2])
    late = service_pb2.ModelInferRequest(model_name="late")
    calls = [
        _call("ServerLive", b""),
        _call("ModelInfer", infer.SerializeToString()),
        _call("ModelInfer", late.SerializeToString()),
        _call("ModelStreamInfer", infer.SerializeToString()),
        _call("Nothing", b""),
    ]
    ends = [
        _frame(3, 0, 1, b"\0\0\0\x08"),
        _frame(8, 0, 1, bytes(4)),
        _frame(4, 0, 0, b"\0\x04\0\0\0\0"),
        _frame(6, 0, 0, bytes(8)),
        _frame(7, 0, 0, bytes(8)),
    ]
    whole = [bytes([how]) + call for how in (0, 2, 4, 40) for call in calls]
    return [*whole, *(b"\0" + call + end for call in calls for end in ends), b"\1" + PREFACE + calls[0]]


def _call(method: str, message: bytes) -> bytes:
    path = f"/inference.GRPCInferenceService/{method}".encode()
    fields = (
        (b":path", path),
        (b":authority", b"t"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    block = b"\x83\x86" + b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields
    )
    body = b"\0" + len(message).to_bytes(4) + message
    return _frame(1, 4, 1, block) + _frame(0, 1, 1, body)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload
