"""Objects of calls and connections that are over are gone at once, and not only when garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from hyperframe import frame as frames
from tritonpy.response import InferResponse

from ....simulator.virtual_loop import in_virtual_time, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

from tritonpy.frontends.grpc.native.call import Call
from tritonpy.frontends.grpc.native.connection import GrpcConnection
from tritonpy.frontends.grpc.native.framing import MessageReader
from tritonpy.frontends.grpc.native.keepalive import Lifetime
from tritonpy.frontends.grpc.native.ngh2_engine import Ngh2Engine

from .hand_driven import INFER, LIVE, STREAM_INFER, Client, message

ECHO = infer_request().SerializeToString()
MANUAL = infer_request("manual").SerializeToString()
LARGE = infer_request(data=bytes(200_000)).SerializeToString()


def alive() -> list[str]:
    """Names of the kinds of those objects that there are."""
    kinds = (Call, GrpcConnection, Lifetime, MessageReader, Ngh2Engine)
    return sorted(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))


def answered(client: Client) -> None:
    client.call(INFER, ECHO)


def described(client: Client) -> None:
    client.call(LIVE, b"")


def refused(client: Client) -> None:
    client.call("/nobody", ECHO)


def broken(client: Client) -> None:
    client.call(INFER, b"no protobuf")


def cancelled(client: Client) -> None:
    client.call(INFER, MANUAL)
    client.send(client.reset())
    client.dataplane.requests.clear()


def in_pieces(client: Client) -> None:
    client.send(client.headers(), client.data(message(ECHO)[:9], is_last=False))
    client.send(client.data(message(ECHO)[9:]))


def streamed(client: Client) -> None:
    client.send(client.headers(STREAM_INFER), client.data(message(ECHO)))


@pytest.mark.parametrize("make", [answered, described, refused, broken, cancelled, in_pieces, streamed])
@in_virtual_time
async def test_a_call_that_is_over_is_gone(make: Callable[[Client], None]) -> None:
    client = Client.greeted()
    make(client)  # what the first one loads is not its own
    await turns()
    gc.collect()
    gc.disable()
    try:
        before = alive()
        make(client)
        await turns()
        client.take()
        await turns()

        assert alive() == before
    finally:
        gc.enable()


@in_virtual_time
async def test_a_stream_that_was_offered_its_requests_is_gone() -> None:
    client = Client.greeted()
    for _ in range(2):  # what the first one loads is not its own
        gc.collect()
        gc.disable()
        try:
            before = alive()
            client.send(client.headers(STREAM_INFER))
            await turns()
            client.send(client.data(message(ECHO), is_last=False))
            client.send(client.data(message(ECHO)))
            await turns()
            client.take()
            await turns()
            after = alive()
        finally:
            gc.enable()

    assert after == before


@in_virtual_time
async def test_a_connection_that_is_lost_is_gone_with_what_waited_for_its_client() -> None:
    gc.collect()
    gc.disable()
    try:
        before = alive()
        client = Client.greeted({"ping_after_s": 10.0})
        client.send(frames.SettingsFrame(settings={4: 0}))
        client.call(INFER, LARGE)
        client.call(INFER, MANUAL)
        queued = client.connection.engine.queued(0)
        client.connection.connection_lost(None)
        client.dataplane.requests.pop().deliver(InferResponse())
        client.dataplane.seen = None
        del client
        await turns()

        assert queued > 200_000
        assert alive() == before
    finally:
        gc.enable()
