"""Calls of many messages on one connection, driven by hand."""

from __future__ import annotations

import asyncio
import gzip
import logging
from asyncio import sleep

import numpy as np
import pytest
from hyperframe import frame as frames
from tritonclient.grpc import service_pb2
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

from ....simulator.virtual_loop import in_virtual_time, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

from tritonpy.frontends.grpc import servicer
from tritonpy.frontends.grpc.native.engine import StreamGone
from tritonpy.frontends.grpc.native.framing import MessageReader
from tritonpy.frontends.grpc.native.ngh2_engine import Ngh2Engine

from .hand_driven import LIVE, MUCH_WINDOW, STREAM_INFER, Client, message

MEBIBYTE = 1 << 20
ECHO = infer_request().SerializeToString()
LARGE = message(infer_request(data=bytes(3 * MEBIBYTE)).SerializeToString())
MANUAL = infer_request("manual", id="mine").SerializeToString()
WATCH = "/grpc.health.v1.Health/Watch"
BROKEN = b"\x02\0\0\0\0"
"""The prefix of a message with a flag that does not exist."""


@in_virtual_time
async def test_a_stream_that_is_refused_cancels_its_requests() -> None:
    client = Client.greeted()
    client.send(client.headers(STREAM_INFER), client.data(message(MANUAL), is_last=False))
    await turns()

    client.send(client.data(BROKEN, is_last=False))
    await turns()

    assert client.answer().status[0] == 13
    assert client.dataplane.cancelled == ["mine"]


@in_virtual_time
async def test_a_stream_that_is_refused_leaves_no_task_behind() -> None:
    client = Client.greeted()
    before = asyncio.all_tasks()
    client.send(client.headers(WATCH), client.data(message(b""), is_last=False))
    await turns()
    watching = asyncio.all_tasks() - before

    client.send(client.data(BROKEN, is_last=False))
    await sleep(1)

    assert len(watching) == 1
    assert asyncio.all_tasks() == before


def send(client: Client, stream: int, data: bytes, is_last: bool = False) -> None:
    """Send bytes of a stream, whatever their number."""
    for begin in range(0, len(data), 100_000):
        is_end = is_last and begin + 100_000 >= len(data)
        client.send(client.data(data[begin : begin + 100_000], is_end, stream))


def rooms(client: Client) -> list[int]:
    """The streams that the client was given more room for."""
    return [each.stream_id for each in client.take() if isinstance(each, frames.WindowUpdateFrame)]


async def two_streams() -> Client:
    """One stream whose message takes most of what may be held, and another that has begun with one, too."""
    client = Client.greeted(max_inflight_byte_size=5 * MEBIBYTE)
    client.send(*MUCH_WINDOW, client.headers(STREAM_INFER), client.headers(STREAM_INFER))
    await turns()
    for stream in (1, 3):
        send(client, stream, LARGE[:-MEBIBYTE])
    return client


# Writing without a turn of the loop.


def number(value: int, padding: int = 0) -> InferResponse:
    return InferResponse().add("OUTPUT0", np.array([value] + [0] * padding, np.int32))


async def asked(client: Client, **headers: str) -> InferRequest:
    """A request to a decoupled model in a stream of its own; the test has to answer it."""
    request = infer_request("decoupled", id="mine").SerializeToString()
    client.send(client.headers(STREAM_INFER, **headers), client.data(message(request), is_last=False))
    await turns()
    client.take()
    return client.dataplane.requests.pop()


def messages(data: bytes) -> list[tuple[int, bytes]]:
    """The flag and the body of each message."""
    found, refused = [], MessageReader(lambda size: None)
    for flag, body in refused.feed(data):
        found.append((flag, bytes(body)))
    assert refused.is_between
    return found


def values(client: Client) -> list[int]:
    """The numbers that were received on the last stream."""
    responses = (
        service_pb2.ModelStreamInferResponse.FromString(body) for _, body in messages(client.answer().data)
    )
    return [
        int.from_bytes(each.infer_response.raw_output_contents[0][:4], "little")
        for each in responses
        if each.infer_response.outputs
    ]


@in_virtual_time
async def test_a_first_response_leaves_before_its_model_is_read_from_again() -> None:
    client = Client.greeted()
    request = await asked(client)
    loop = asyncio.get_running_loop()
    received: list[list[int]] = []

    def first_read() -> None:
        for value in range(100):
            request.deliver(number(value), False)
        loop.call_soon(second_read)  # the next turn of the loop

    def second_read() -> None:
        received.append(values(client))

    loop.call_soon(first_read)
    await turns()

    assert received == [list(range(100))]


@in_virtual_time
async def test_responses_keep_their_order_while_the_window_of_a_client_is_full() -> None:
    client = Client.greeted()
    client.send(frames.SettingsFrame(settings={4: 10_000}))
    request = await asked(client)
    for value in range(200):
        request.deliver(number(value, padding=250), False)
        if value % 7 == 0:
            await turns()
    received = len(client.answer().data)
    for value in range(200, 400):
        client.send(frames.WindowUpdateFrame(client._stream, window_increment=3_000))
        client.send(frames.WindowUpdateFrame(0, window_increment=3_000))
        await turns()
        request.deliver(number(value, padding=250), value == 399)
    client.send(*MUCH_WINDOW)
    await turns()

    assert received == 10_000
    assert values(client) == list(range(400))


@in_virtual_time
async def test_a_client_that_does_not_read_costs_bounded_memory() -> None:
    client = Client.greeted(max_stream_response_count=64)
    client.send(frames.SettingsFrame(settings={4: 0}))
    request = await asked(client)
    flow = request.response_flow()
    sent = most = 0
    while not flow.is_paused:
        request.deliver(number(sent, padding=250), False)
        sent += 1
        if sent % 5 == 0:
            await turns()
        most = max(most, client.connection.engine.queued(0))

    assert most < 20_000
    assert sent < 100


@in_virtual_time
async def test_a_response_to_a_client_that_is_gone_is_no_error_of_its_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client.greeted()
    request = await asked(client)

    client.send(client.reset())
    request.deliver(number(1), False)
    await turns()

    assert client.dataplane.cancelled == ["mine"]
    assert values(client) == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@in_virtual_time
async def test_nor_is_one_whose_stream_ends_as_it_is_sent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client.greeted()
    request = await asked(client)

    def gone(*_: object) -> None:
        client.send(client.reset())
        raise StreamGone

    monkeypatch.setattr(Ngh2Engine, "data", gone)
    request.deliver(number(1), False)
    await turns()

    assert client.dataplane.cancelled == ["mine"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@in_virtual_time
async def test_responses_that_are_compressed_keep_their_order() -> None:
    client = Client.greeted(grpc_compression_level="low")
    request = await asked(client, grpc_accept_encoding="gzip")
    for value in range(20):
        request.deliver(number(value, padding=500), False)
    await sleep(1)

    found = messages(client.answer().data)
    assert [flag for flag, _ in found] == [1] * 20
    inflated = (service_pb2.ModelStreamInferResponse.FromString(gzip.decompress(body)) for _, body in found)
    assert [each.infer_response.raw_output_contents[0][0] for each in inflated] == list(range(20))


# Reading without a turn of the loop.


async def opened(client: Client, **headers: str) -> None:
    """A stream that waits for its first message."""
    client.send(client.headers(STREAM_INFER, **headers))
    await turns()
    client.take()
    client.transport.written.clear()


def ids(client: Client) -> list[str]:
    """The ids of the requests that were answered on the last stream."""
    return [
        service_pb2.ModelStreamInferResponse.FromString(body).infer_response.id
        for _, body in messages(client.answer().data)
    ]


def request_of(id: str, model: str = "echo", padding: int = 8) -> bytes:
    body: bytes = infer_request(model, data=bytes(padding), id=id).SerializeToString()
    return body


@in_virtual_time
async def test_requests_are_taken_and_answered_within_the_read_that_brings_them() -> None:
    client = Client.greeted()
    await opened(client)

    client.send(*(client.data(message(request_of(id)), is_last=False) for id in "abc"))

    assert len(client.transport.written) == 1
    assert ids(client) == ["a", "b", "c"]


@in_virtual_time
async def test_a_stream_that_is_half_closed_with_its_last_request_ends_behind_the_answer() -> None:
    client = Client.greeted()
    await opened(client)

    client.send(client.data(message(request_of("a", "manual")), is_last=True))
    await turns()
    open_yet = client.answer().is_complete
    client.dataplane.requests.pop().deliver(number(1))
    await turns()

    assert not open_yet
    assert ids(client) == ["a"]
    assert client.answer().status == (0, "")


@in_virtual_time
async def test_a_request_does_not_overtake_one_that_is_inflated() -> None:
    client = Client.greeted()
    await opened(client, grpc_encoding="gzip")

    client.send(
        client.data(message(gzip.compress(request_of("a")), flag=1), is_last=False),
        client.data(message(request_of("b")), is_last=False),
    )
    await turns()
    client.send(client.data(message(request_of("c")), is_last=False))
    await turns()

    assert ids(client) == ["a", "b", "c"]


@in_virtual_time
async def test_requests_for_which_there_is_no_room_wait_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servicer, "_MOST_HELD_BYTES", 5_000)
    client = Client.greeted()
    await opened(client)

    sent = [str(index) for index in range(12)]
    for id in sent:
        client.send(client.data(message(request_of(id, "manual")), is_last=False))
    await turns()
    taken = [request.id for request in client.dataplane.requests]
    most = len(taken)
    for done in range(12):
        client.dataplane.requests[done].deliver(number(done))
        await turns()
        most = max(most, len(client.dataplane.requests) - done - 1)

    assert taken == ["0", "1", "2"]
    assert most == 3
    assert [request.id for request in client.dataplane.requests] == sent
    assert ids(client) == sent


@in_virtual_time
async def test_a_client_is_given_no_room_for_requests_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "_MOST_HELD_BYTES", 5_000)
    client = Client.greeted()
    await opened(client)
    part = message(request_of("large", "manual", padding=80_000))

    for _ in range(40):
        send(client, client._stream, part)
        await turns()
    held = rooms(client)
    while len(client.dataplane.requests) < 40:
        client.dataplane.requests[-1].deliver(number(1))
        await turns()

    assert client._stream not in held
    assert client._stream in rooms(client)


@in_virtual_time
async def test_a_request_that_comes_with_the_end_of_its_stream_is_cancelled() -> None:
    client = Client.greeted()
    await opened(client)

    client.send(client.data(message(request_of("a", "manual")), is_last=False), client.reset())
    await turns()

    assert client.dataplane.cancelled == ["a"]


# Room for messages.


@in_virtual_time
async def test_a_message_is_held_up_until_there_is_room_for_it() -> None:
    client = await two_streams()
    held = client.admission.held
    early = rooms(client)

    send(client, 1, LARGE[-MEBIBYTE:], is_last=True)
    await turns()
    late = rooms(client)
    held_later = client.admission.held
    send(client, 3, LARGE[-MEBIBYTE:], is_last=True)
    await sleep(6)

    assert (held, held_later) == (len(LARGE) - 5, len(LARGE) - 5)
    assert (3 in early, 3 in late) == (False, True)
    assert [client.answer(stream).status for stream in (1, 3)] == [(0, ""), (0, "")]
    assert client.admission.held == 0


@in_virtual_time
async def test_a_message_that_needs_no_more_room_is_not_held_up() -> None:
    client = await two_streams()

    send(client, 3, LARGE[-MEBIBYTE:], is_last=True)
    await sleep(6)

    # As any other that has come: there is room for one, and the other is refused in its turn.
    assert client.answer(3).status == (0, "")
    assert b"refused: " in client.answer(3).data


@in_virtual_time
async def test_a_stream_is_refused_when_there_is_no_room_for_long() -> None:
    client = await two_streams()

    await sleep(4.9)
    early = client.answer(3).is_complete
    await sleep(0.2)

    assert not early
    assert client.answer(3).status[0] == 14
    assert "--max-inflight-bytes is 5242880" in client.answer(3).status[1]
    assert not client.answer(1).is_complete
    assert client.admission.held == len(LARGE) - 5


@in_virtual_time
async def test_a_stream_that_ends_waits_for_no_room() -> None:
    client = await two_streams()

    client.send(client.reset())
    send(client, 1, LARGE[-MEBIBYTE:], is_last=True)
    await sleep(6)

    assert client.answer(1).status == (0, "")
    assert client.admission.held == 0


@in_virtual_time
async def test_streams_that_are_not_read_leave_room_for_calls() -> None:
    client = Client.greeted(max_stream_byte_size=1000)
    client.send(frames.SettingsFrame(settings={4: 1000}))
    body = message(infer_request(data=bytes(100_000)).SerializeToString())
    for _ in range(12):
        client.send(client.headers(STREAM_INFER))
        stream = client._stream
        for _ in range(3):  # two answers wait, so that the third request is not read
            send(client, stream, body)
            await turns()
        send(client, stream, LARGE)

    client.call(LIVE, b"")

    assert client.answer().status == (0, "")
