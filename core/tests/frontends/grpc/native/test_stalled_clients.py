"""Clients that keep a call waiting, and those that only seem to, driven by hand: each sweep is 15 seconds."""

from __future__ import annotations

import numpy as np
import pytest
from hyperframe import frame as frames
from tritonpy.response import InferResponse

from ....simulator.virtual_loop import in_virtual_time, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

from .hand_driven import INFER, MUCH_WINDOW, STREAM_INFER, Client, message

ECHO = infer_request().SerializeToString()
MANUAL = infer_request("manual").SerializeToString()
LARGE = infer_request(data=bytes(200_000)).SerializeToString()
TOO_LATE = (4, "The request's message did not arrive in time")
NO_WINDOW = frames.SettingsFrame(settings={4: 0})


async def sweep(client: Client, count: int) -> None:
    for _ in range(count):
        client.server.listener.sweeper.sweep()
        await turns()


@pytest.mark.parametrize(
    "sent",
    [b"", message(ECHO)[:3], message(ECHO)[:-1], message(ECHO)],
    ids=["nothing", "half a prefix", "half a message", "a message without an end"],
)
@in_virtual_time
async def test_a_call_whose_client_sends_no_more_is_ended(sent: bytes) -> None:
    client = Client.greeted(max_inflight_byte_size=1000)
    client.send(client.headers(), client.data(sent, is_last=False))

    await sweep(client, 4)
    is_waiting = client.answer().headers == []
    await sweep(client, 1)

    assert is_waiting
    assert client.answer().status == TOO_LATE
    assert client.admission.held == 0


@in_virtual_time
async def test_a_call_whose_client_sends_little_is_kept() -> None:
    client = Client.greeted()
    client.send(client.headers())

    for byte in message(ECHO):
        await sweep(client, 4)
        client.send(client.data(bytes((byte,)), is_last=False))
    client.send(client.data(b""))

    assert client.answer().status == (0, "")


@in_virtual_time
async def test_a_stream_may_be_silent_between_messages_but_not_within_one() -> None:
    client = Client.greeted()
    client.send(client.headers(STREAM_INFER))
    await sweep(client, 10)
    silent = client.answer().is_complete

    client.send(client.data(message(ECHO)[:-1], is_last=False))
    await sweep(client, 5)

    assert not silent
    assert client.answer().status == TOO_LATE


@in_virtual_time
async def test_a_stream_that_is_given_no_room_is_kept() -> None:
    client = Client.greeted(max_stream_byte_size=1000)
    client.send(NO_WINDOW, client.headers(STREAM_INFER))
    for _ in range(3):  # two answers wait, so that the third request is not read
        client.send(client.data(message(LARGE), is_last=False))
        await turns()
    client.send(client.data(message(LARGE)[:-1], is_last=False))

    await sweep(client, 10)
    is_open = not client.answer().is_complete
    client.send(*MUCH_WINDOW, client.data(message(LARGE)[-1:]))
    for _ in range(4):
        await turns()
        client.take()

    assert is_open
    assert client.answer().status == (0, "")


@in_virtual_time
async def test_a_call_is_kept_while_nothing_is_read_from_its_client() -> None:
    client = Client.greeted()
    client.transport.most_waiting = 1000
    client.send(*MUCH_WINDOW, client.headers(), client.data(message(ECHO)[:-1], is_last=False))
    client.take()

    client.call(INFER, LARGE)
    was_reading = client.transport.is_reading
    await sweep(client, 4)
    while client.take():
        pass
    await sweep(client, 4)
    client.send(client.data(message(ECHO)[-1:], stream=1))

    assert not was_reading
    assert client.answer(1).status == (0, "")


@in_virtual_time
async def test_an_answer_without_a_window_is_dropped() -> None:
    client = Client.greeted()
    client.send(NO_WINDOW)
    client.call(INFER, ECHO)

    await sweep(client, 4)
    is_waiting = client.answer().reset is None
    await sweep(client, 1)

    assert is_waiting
    assert client.answer().reset == 8
    assert client.connection.engine.queued(0) == 0
    assert client.connection.call_count == 0


@in_virtual_time
async def test_an_answer_without_a_window_is_dropped_while_others_are_taken() -> None:
    client = Client.greeted()
    client.send(NO_WINDOW)
    stalled = client.call(INFER, ECHO)

    for _ in range(5):
        client.call(INFER, ECHO)
        client.send(frames.WindowUpdateFrame(client._stream, window_increment=1000))
        await sweep(client, 1)

    assert client.answer(stalled).reset == 8


@in_virtual_time
async def test_an_answer_may_wait_behind_others_that_are_taken_slowly() -> None:
    client = Client.greeted()
    client.transport.most_waiting = 1000
    client.send(*MUCH_WINDOW)
    client.take()

    streams = [client.call(INFER, MANUAL) for _ in range(8)]
    for request in client.dataplane.requests:
        request.deliver(InferResponse().add("OUTPUT0", np.zeros(200_000, np.uint8)))
    for _ in range(30):
        await sweep(client, 1)
        client.take()

    assert [client.answer(stream).status for stream in streams] == [(0, "")] * 8


@in_virtual_time
async def test_a_client_that_takes_nothing_is_left() -> None:
    client = Client.greeted()
    client.transport.most_waiting = 1000
    client.send(*MUCH_WINDOW)

    client.call(INFER, LARGE)
    await sweep(client, 4)
    is_open = not client.transport.is_over
    await sweep(client, 1)

    assert is_open
    assert client.transport.is_over


@in_virtual_time
async def test_the_end_of_a_connection_is_not_waited_for_longer_than_an_answer() -> None:
    client = Client.greeted()
    client.transport.closes_when_empty = True

    client.feed(b"no frame of HTTP/2, whatever its kind")
    await sweep(client, 4)
    is_open = client.connection in client.server.listener.connections
    await sweep(client, 1)

    assert client.transport.is_closing()
    assert is_open
    assert client.connection not in client.server.listener.connections
