"""The handlers that grpcio calls: they take and give bytes, and turn errors into statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError, Message

from tritonpy.errors import Internal, TritonError, Unavailable
from tritonpy.frontends.grpc.compression import COMPRESSED, MessageInflation
from tritonpy.frontends.grpc.errors import HungUp, as_triton_error, status_of
from tritonpy.frontends.grpc.guard import INFERENCE_SERVICE
from tritonpy.frontends.grpc.health import CHECK, HealthCalls
from tritonpy.frontends.grpc.reflection import HEALTH_SERVICE, REFLECTION_CALLS, reflection_answer
from tritonpy.frontends.grpc.servicer import DescribedCall, Servicer
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.grpc.tracing import note_sending
from tritonpy.frontends.grpc.unary import UnaryInfer, UnaryPort
from tritonpy.protos import RpcMethod, rpc_methods

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Any: each call has its own types
UnaryCall: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]

_CODES = {Status(code.value[0]): code for code in grpc.StatusCode}


def make_handlers(servicer: Servicer, health: HealthCalls, inflation: MessageInflation) -> dict[str, Handler]:
    """Make what answers each call of the port, by its full name.

    Args:
        servicer: of inference.
        health: of the standard service.
        inflation: of messages that come compressed.
    """
    described = servicer.described_calls()
    handlers: dict[str, Handler] = {}
    handler: Handler
    for method in rpc_methods():
        match method.name:
            case "ModelInfer":
                handler = grpc.unary_unary_rpc_method_handler(_model_infer(servicer, inflation))
            case "ModelStreamInfer":
                handler = grpc.stream_stream_rpc_method_handler(_model_stream_infer(servicer, inflation))
            case name:
                call = _described_call(method, described[name], inflation)
                handler = grpc.unary_unary_rpc_method_handler(call)
        handlers[INFERENCE_SERVICE + method.name] = handler
    check = _described_call(CHECK, cast("DescribedCall", health.check), inflation)
    handlers[f"/{HEALTH_SERVICE}/Check"] = grpc.unary_unary_rpc_method_handler(check)
    handlers[f"/{HEALTH_SERVICE}/Watch"] = grpc.unary_stream_rpc_method_handler(_watch(health))
    reflection: Handler = grpc.stream_stream_rpc_method_handler(_reflect)
    return {**handlers, **dict.fromkeys(REFLECTION_CALLS, reflection)}


def refusing(handler: Handler, text: str) -> Handler:
    """A handler that ends a call UNAVAILABLE with a text, in the place of another."""

    async def refuse(_: object, context: Context) -> NoReturn:
        await _abort(context, Unavailable(text))

    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse)
    return grpc.unary_unary_rpc_method_handler(refuse)


def _model_infer(servicer: Servicer, inflation: MessageInflation) -> UnaryCall:
    reads_metadata = servicer.reads_metadata

    async def handle(body: bytes, context: Context) -> bytes:
        call: _Infer | None
        try:
            message = await inflation.inflate(body) if body.startswith(COMPRESSED) else body
            metadata = context.invocation_metadata() if reads_metadata else None
            call = _Infer(servicer.unary)
            call.start(message, metadata or ())
            try:
                outcome = await call.outcome
            except asyncio.CancelledError:  # the client went away, or its deadline passed
                call.cancel()
                raise
            if call.trace is not None:
                note_sending(call.trace, context.add_done_callback)
        except Exception as exc:
            outcome = _as_error(exc, "ModelInfer").with_traceback(None)
        call = None  # a trace ends with it, and grpcio keeps this frame until the garbage collector runs
        if isinstance(outcome, TritonError):
            await _abort(context, outcome)
        return outcome

    return handle


class _Infer(UnaryInfer):
    """A call whose handler waits for its outcome."""

    __slots__ = ("outcome",)

    def __init__(self, port: UnaryPort) -> None:
        super().__init__(port)
        self.outcome: asyncio.Future[bytes | TritonError] = asyncio.get_running_loop().create_future()

    def _answer(self, outcome: bytes | TritonError) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def _model_stream_infer(
    servicer: Servicer, inflation: MessageInflation
) -> Callable[[object, Context], Awaitable[None]]:
    async def handle(_: object, context: Context) -> None:
        async def read() -> bytes | memoryview | None:
            try:
                body = await context.read()
            except grpc.aio.InternalError:
                raise HungUp from None
            if not isinstance(body, bytes):  # grpc.aio.EOF
                return None
            return await inflation.inflate(body) if body.startswith(COMPRESSED) else body

        try:
            metadata = context.invocation_metadata() or ()
            await servicer.model_stream_infer(read, context.write, metadata)
            return
        except Exception as exc:
            error = _as_error(exc, "ModelStreamInfer")
        await _abort(context, error)

    return handle


def _described_call(method: RpcMethod, answer: DescribedCall, inflation: MessageInflation) -> UnaryCall:
    """Parses the request, asks `answer`, and serializes what it says."""

    async def handle(body: bytes, context: Context) -> bytes:
        try:
            request = await inflation.inflate(body) if body.startswith(COMPRESSED) else body
            message = answer(method.request.FromString(bytes(request)))
            if not isinstance(message, Message):
                message = await message
            return message.SerializeToString()
        except DecodeError:
            error: TritonError = Internal("Unable to parse request")
        except Exception as exc:
            error = _as_error(exc, method.name)
        await _abort(context, error)

    return handle


def _watch(health: HealthCalls) -> Callable[[bytes, Context], Awaitable[None]]:
    async def handle(_: bytes, context: Context) -> None:  # whatever service is asked for
        try:
            await health.watch(context.write)
            return
        except Exception as exc:
            error = _as_error(exc, "Watch")
        await _abort(context, error)

    return handle


async def _reflect(_: object, context: Context) -> None:
    try:
        while isinstance(body := await context.read(), bytes):
            await context.write(reflection_answer(body))
        return
    except DecodeError:
        error: TritonError = Internal("Unable to parse request")
    except Exception as exc:
        error = _as_error(exc, "ServerReflectionInfo")
    await _abort(context, error)


def _as_error(exc: Exception, where: str) -> TritonError:
    """As `as_triton_error`, which does not know how grpcio says that a client is gone."""
    return as_triton_error(HungUp() if isinstance(exc, grpc.aio.InternalError) else exc, where)


async def _abort(context: Context, error: TritonError) -> NoReturn:
    try:
        code, text = status_of(error)
        await context.abort(_CODES[code], text)
    except grpc.aio.InternalError:  # nobody is left to be told, and grpcio would log that as an error
        raise asyncio.CancelledError from None
    raise AssertionError  # abort raises
