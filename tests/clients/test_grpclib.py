"""The gRPC port called by grpclib, whose HTTP/2 is Python: a stack that shares nothing with grpcio."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from grpclib.client import Channel, StreamStreamMethod, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from tritonclient.grpc import service_pb2
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import ClientServer, TlsServer
from .models import SEEN, infer_message, seen_by_model

SERVICE = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/"


def infer_method(channel: Channel) -> UnaryUnaryMethod[Any, Any]:
    return UnaryUnaryMethod(
        channel, f"{SERVICE}ModelInfer", service_pb2.ModelInferRequest, service_pb2.ModelInferResponse
    )


def stream_method(channel: Channel) -> StreamStreamMethod[Any, Any]:
    return StreamStreamMethod(
        channel,
        f"{SERVICE}ModelStreamInfer",
        service_pb2.ModelInferRequest,
        service_pb2.ModelStreamInferResponse,
    )


@pytest.fixture
async def channel(server: ClientServer) -> AsyncIterator[Channel]:
    host, _, port = server.grpc.rpartition(":")
    async with Channel(host, int(port)) as channel:
        yield channel


async def test_an_inference_comes_back_with_metadata_both_ways(channel: Channel) -> None:
    numbers = np.array([[1.5, -2, 3]], np.float32)
    message = infer_message("echo", NUMBERS_IN=numbers, id="mine")

    async with infer_method(channel).open(metadata={"x-tenant": "blue"}, timeout=DEADLINE_S) as call:
        await call.send_message(message, end=True)
        await call.recv_initial_metadata()
        answer = await call.recv_message()
        await call.recv_trailing_metadata()

    assert answer.id == "mine"
    values = dict(zip((output.name for output in answer.outputs), answer.raw_output_contents, strict=True))
    assert values["NUMBERS_OUT"] == numbers.tobytes()
    assert seen_by_model(values[SEEN])["parameters"] == {"x-tenant": "blue"}
    assert call.trailing_metadata is not None


async def test_a_tensor_larger_than_every_window_comes_back_whole(channel: Channel) -> None:
    numbers = np.arange(2_000_000, dtype=np.float32).reshape(1, -1)

    answer = await infer_method(channel)(infer_message("echo", NUMBERS_IN=numbers), timeout=DEADLINE_S)

    assert answer.raw_output_contents[0] == numbers.tobytes()


async def test_calls_side_by_side_are_answered_each_with_its_own(channel: Channel) -> None:
    async def ask(number: int) -> bytes:
        numbers = np.full((1, 3), number, np.float32)
        answer = await infer_method(channel)(infer_message("echo", NUMBERS_IN=numbers), timeout=DEADLINE_S)
        return bytes(answer.raw_output_contents[0])

    answers = await asyncio.gather(*map(ask, range(30)))

    assert answers == [np.full((1, 3), number, np.float32).tobytes() for number in range(30)]


@pytest.mark.parametrize(
    ("model", "code", "status", "text"),
    [
        ("fäils", None, Status.NOT_FOUND, "Request for unknown model: 'fäils' is not found"),
        ("fails", "UNAVAILABLE", Status.UNAVAILABLE, "so UNAVAILABLE"),
        ("fails", "raise", Status.INTERNAL, "ValueError: boom"),
    ],
)
async def test_a_failure_has_its_status_and_text(
    channel: Channel, model: str, code: str | None, status: Status, text: str
) -> None:
    tensors = {} if code is None else {"CODE": np.array([code], object)}
    with pytest.raises(GRPCError) as failed:
        await infer_method(channel)(infer_message(model, **tensors), timeout=DEADLINE_S)

    assert failed.value.status is status
    assert failed.value.message is not None
    assert text in failed.value.message


async def test_a_call_that_is_not_there_is_unimplemented(channel: Channel) -> None:
    method = UnaryUnaryMethod(
        channel, "/no.such.Service/Call", service_pb2.ServerLiveRequest, service_pb2.ServerLiveResponse
    )
    with pytest.raises(GRPCError) as failed:
        await method(service_pb2.ServerLiveRequest(), timeout=DEADLINE_S)

    assert failed.value.status is Status.UNIMPLEMENTED


async def test_a_stream_answers_as_it_is_asked_and_ends_with_its_client(channel: Channel) -> None:
    numbers, finals = [], []
    async with stream_method(channel).open(timeout=DEADLINE_S) as stream:
        for count in (2, 3):
            message = infer_message("counts", COUNT=np.array([count], np.int32))
            message.parameters["triton_enable_empty_final_response"].bool_param = True
            await stream.send_message(message)
            for _ in range(count + 1):
                response = (await stream.recv_message()).infer_response
                finals.append(response.parameters["triton_final_response"].bool_param)
                numbers += [int.from_bytes(raw, "little") for raw in response.raw_output_contents]
        await stream.end()
        ended = await stream.recv_message()

    assert ended is None
    assert numbers == [0, 1, 0, 1, 2]
    assert finals == [False, False, True, False, False, False, True]


async def test_an_error_in_a_stream_leaves_it_open(channel: Channel) -> None:
    async with stream_method(channel).open(timeout=DEADLINE_S) as stream:
        await stream.send_message(infer_message("nope"))
        refused = await stream.recv_message()
        await stream.send_message(infer_message("counts", COUNT=np.array([1], np.int32)), end=True)
        answered = [message async for message in stream]

    assert refused.error_message == "Request for unknown model: 'nope' is not found"
    assert [message.error_message for message in answered] == [""]


async def test_a_stream_that_is_cancelled_stops_its_model(channel: Channel, server: ClientServer) -> None:
    async with stream_method(channel).open() as stream:
        await stream.send_message(infer_message("counts", COUNT=np.array([4_011], np.int32)))
        await stream.recv_message()
        await stream.cancel()

    await asyncio.to_thread(until, lambda: re.search(r"stopped counting to 4011 at \d+", server.log))


async def test_a_deadline_ends_the_call_and_its_request(channel: Channel, server: ClientServer) -> None:
    """A busy machine may not have begun a request at its deadline: then another one is sent."""

    async def is_stopped(patience_s: float) -> bool:
        message = infer_message("slow", SECONDS=np.array([60], np.float32), id=f"grpclib-{patience_s}")
        with pytest.raises((GRPCError, asyncio.TimeoutError)) as late:
            await infer_method(channel)(message, timeout=patience_s)
        if isinstance(late.value, GRPCError):
            assert late.value.status is Status.DEADLINE_EXCEEDED
        with suppress(AssertionError):
            await asyncio.to_thread(until, lambda: f"nobody waits for request {message.id}" in server.log)
        return f"nobody waits for request {message.id}" in server.log

    assert await is_stopped(1.0) or await is_stopped(12)


async def test_health_is_said_and_watched(channel: Channel) -> None:
    check = UnaryUnaryMethod(
        channel, f"{HEALTH}Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    )
    watch = UnaryStreamMethod(
        channel, f"{HEALTH}Watch", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    )
    said = await check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
    async with watch.open() as call:
        await call.send_message(health_pb2.HealthCheckRequest(service="scores"), end=True)
        watched = await call.recv_message()
        await call.cancel()

    assert (said.status, watched.status) == (1, 1)


async def test_tls_is_spoken(tls_server: TlsServer) -> None:
    trusting = ssl.create_default_context()
    tls_server.authority.configure_trust(trusting)
    trusting.set_alpn_protocols(["h2"])

    async with Channel("localhost", tls_server.port, ssl=trusting) as channel:
        method = UnaryUnaryMethod(
            channel, f"{SERVICE}ServerLive", service_pb2.ServerLiveRequest, service_pb2.ServerLiveResponse
        )
        assert (await method(service_pb2.ServerLiveRequest(), timeout=DEADLINE_S)).live
        # Without the farewell of TLS, which not every server answers: then asyncio waits 30 s for it.
        channel._protocol.connection._transport.abort()
