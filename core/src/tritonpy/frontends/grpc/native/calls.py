"""The calls of the native port: what answers each, by its full name."""

from __future__ import annotations

from functools import partial
from typing import cast

from tritonpy.frontends.grpc.guard import INFERENCE_SERVICE
from tritonpy.frontends.grpc.health import CHECK, HealthCalls
from tritonpy.frontends.grpc.native.connection import CallFactory
from tritonpy.frontends.grpc.native.streaming import Serve, StreamingCall
from tritonpy.frontends.grpc.native.unary import AnsweredCall, InferCall, described
from tritonpy.frontends.grpc.reflection import HEALTH_SERVICE, REFLECTION_CALLS, reflection_answer
from tritonpy.frontends.grpc.servicer import DescribedCall, Servicer
from tritonpy.protos import rpc_methods


def make_calls(servicer: Servicer, health: HealthCalls) -> dict[str, CallFactory]:
    """Make what answers each call of the port.

    Args:
        servicer: of inference.
        health: of the standard service.
    """

    async def infer(call: StreamingCall) -> None:
        await servicer.model_stream_infer(call.read, call.write, call.head.metadata, call)

    async def watch(call: StreamingCall) -> None:  # whatever service is asked for
        await call.read()
        await health.watch(call.write)

    answers = servicer.described_calls()
    calls: dict[str, CallFactory] = {}
    for method in rpc_methods():
        match method.name:
            case "ModelInfer":
                call: CallFactory = partial(InferCall, servicer=servicer)
            case "ModelStreamInfer":
                call = _streaming(infer)
            case name:
                call = partial(AnsweredCall, answer=described(method, answers[name]))
        calls[INFERENCE_SERVICE + method.name] = call
    check = described(CHECK, cast("DescribedCall", health.check))
    calls[f"/{HEALTH_SERVICE}/Check"] = partial(AnsweredCall, answer=check)
    calls[f"/{HEALTH_SERVICE}/Watch"] = _streaming(watch)
    return {**calls, **dict.fromkeys(REFLECTION_CALLS, _streaming(_reflect))}


def _streaming(serve: Serve) -> CallFactory:
    return partial(StreamingCall, serve=serve)


async def _reflect(call: StreamingCall) -> None:
    while (body := await call.read()) is not None:
        await call.write(reflection_answer(bytes(body)))
