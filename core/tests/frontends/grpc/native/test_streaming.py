"""Calls of many messages on one connection, driven by hand."""

from __future__ import annotations

import asyncio
from asyncio import sleep

import pytest
from hyperframe import frame as frames

from ....simulator.virtual_loop import in_virtual_time, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

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
