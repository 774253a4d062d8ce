"""The gRPC port on grpcio: listens, gives calls to the servicer, and turns errors into statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message

from tritonpy.errors import Internal, TritonError, Unavailable
from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.grpc.errors import as_triton_error, status_of
from tritonpy.frontends.grpc.servicer import DescribedCall, Servicer
from tritonpy.frontends.grpc.settings import GrpcSettings
from tritonpy.frontends.services import FrontendServices
from tritonpy.protos import RpcMethod, rpc_methods
from tritonpy.protos.pool import SERVICE_NAME

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),  # two servers on one port would take turns, unnoticed
)
_LATE_CALLS_S = 0.05
"""How long a stopping server goes on to refuse calls in words after the last answer."""
_LAST_BYTES_S = 5.0
"""How long a stopping server lets clients take to receive answers that are given."""

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
UnaryHandler: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]


class GrpcServer:
    """`inference.GRPCInferenceService` on one address.

    Messages reach the servicer and leave it serialized: there is no generated code, and gRPC copies nothing
    it need not. Calls that the servicer does not have are answered UNIMPLEMENTED.

    Args:
        dataplane: what calls are answered with.
        services: what it shares with other frontends.
        settings: where and how to listen.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, settings: GrpcSettings) -> None:
        self._servicer = Servicer(dataplane, max_held_byte_size=settings.max_held_byte_size)
        self._services = services
        self._address = settings.address
        self._port = settings.port
        self._server: grpc.aio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            Unavailable: the address cannot be had.
        """
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handlers(),))
        host = f"[{self._address}]" if ":" in self._address else self._address
        try:
            self._port = server.add_insecure_port(f"{host}:{self._port}")
        except RuntimeError as exc:
            # grpcio tells the reason only on standard error.
            raise Unavailable(
                f"Socket '{self._address}:{self._port}' already in use, or not an address of this machine"
            ) from exc
        await server.start()
        self._server = server

    async def stop(self, timeout_s: float) -> None:
        """Refuse new requests, wait for those in flight, and cancel those that take longer.

        The port closes last, and a moment later than it could: calls that grpcio has received but not handed
        over when it stops end CANCELLED, and a client that has just been answered is about to send the next.
        Until then late ones are told UNAVAILABLE.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        try:
            async with asyncio.timeout(timeout_s):
                await self._servicer.drain()
                await asyncio.sleep(_LATE_CALLS_S)
        except TimeoutError:
            await server.stop(None)
        else:
            await server.stop(_LAST_BYTES_S)

    def _handlers(self) -> grpc.GenericRpcHandler:
        described = self._servicer.described_calls()
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._model_infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._model_stream_infer),
        }
        for method in rpc_methods():
            if method.name in described:
                answer = _described_call(method, described[method.name])
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(answer)
        return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)

    async def _model_infer(self, body: bytes, context: Context) -> bytes:
        try:
            outcome = await self._servicer.model_infer(body)
        except Exception as exc:
            outcome = as_triton_error(exc, "ModelInfer")
        if isinstance(outcome, TritonError):
            await context.abort(*status_of(outcome))
        return outcome

    async def _model_stream_infer(self, _: object, context: Context) -> None:
        async def read() -> bytes | None:
            body = await context.read()
            return body if isinstance(body, bytes) else None  # grpc.aio.EOF

        try:
            metadata = context.invocation_metadata() or ()
            await self._servicer.model_stream_infer(read, context.write, metadata)
            return
        except Exception as exc:
            error = as_triton_error(exc, "ModelStreamInfer")
        await context.abort(*status_of(error))


def _described_call(method: RpcMethod, answer: DescribedCall) -> UnaryHandler:
    """A handler that parses the request, asks `answer`, and serializes what it says."""

    async def handle(body: bytes, context: Context) -> bytes:
        try:
            message = answer(method.request.FromString(body))
            if not isinstance(message, Message):
                message = await message
            return message.SerializeToString()
        except DecodeError:
            error: TritonError = Internal("Unable to parse request")
        except Exception as exc:
            error = as_triton_error(exc, method.name)
        await context.abort(*status_of(error))

    return handle
