"""Pings, and the time that connections have, in virtual time."""

from __future__ import annotations

from asyncio import sleep

import numpy as np
import pytest
from hyperframe import frame as frames
from tritonpy.response import InferResponse

from ....simulator.virtual_loop import in_virtual_time, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

from .hand_driven import INFER, LIVE, MUCH_WINDOW, Client

MANUAL = infer_request("manual").SerializeToString()


def pings(client: Client) -> int:
    return sum(isinstance(each, frames.PingFrame) and not each.flags for each in client.take())


def farewells(client: Client) -> list[frames.GoAwayFrame]:
    client.take()
    return [each for each in client.frames if isinstance(each, frames.GoAwayFrame)]


@pytest.mark.parametrize("has_call", [True, False])
@in_virtual_time
async def test_silence_is_asked_about_while_a_call_is_open(has_call: bool) -> None:
    client = Client.greeted({"ping_after_s": 10, "ping_timeout_s": 3})
    if has_call:
        client.call(INFER, MANUAL)
    client.take()

    await sleep(9.9)
    early = pings(client)
    await sleep(0.2)
    asked = pings(client)
    await sleep(3)

    assert (early, asked) == (0, int(has_call))
    assert client.transport.is_over is has_call


@in_virtual_time
async def test_a_client_that_answers_is_kept() -> None:
    client = Client.greeted({"ping_after_s": 10, "ping_timeout_s": 3})
    client.call(INFER, MANUAL)
    client.take()

    asked = 0
    for _ in range(50):
        await sleep(1)
        for each in client.take():
            if isinstance(each, frames.PingFrame):
                asked += 1
                client.send(frames.PingFrame(0, each.opaque_data, flags=["ACK"]))

    assert asked >= 3
    assert not client.transport.is_over


@in_virtual_time
async def test_a_client_that_still_takes_an_answer_is_kept_though_its_own_is_not_read() -> None:
    client = Client.greeted({"ping_after_s": 10, "ping_timeout_s": 3})
    client.send(*MUCH_WINDOW)
    client.call(INFER, MANUAL)
    client.call(INFER, MANUAL)
    await sleep(10.1)
    asked = pings(client)

    client.transport.most_waiting = 1000
    client.dataplane.requests.pop().deliver(InferResponse().add("OUTPUT0", np.zeros(1 << 23, np.uint8)))
    took_s = 0
    while not client.answer().is_complete:
        await sleep(2)
        took_s += 2

    assert asked == 1
    assert took_s > 30
    assert not client.transport.is_over
    await sleep(13.1)  # from now on silence is silence
    assert client.transport.is_over


@in_virtual_time
async def test_pings_without_calls_are_few() -> None:
    limits = {"ping_after_s": 10, "pings_without_calls": True, "most_pings_without_data": 2}
    client = Client.greeted(limits)

    asked = 0
    for _ in range(100):
        await sleep(1)
        for each in client.take():
            if isinstance(each, frames.PingFrame):
                asked += 1
                client.send(frames.PingFrame(0, each.opaque_data, flags=["ACK"]))

    assert asked == 2


@in_virtual_time
async def test_a_client_that_pings_too_often_is_sent_away_in_grpcs_words() -> None:
    client = Client.greeted({"most_strikes": 2, "least_between_pings_s": 10})
    client.call(INFER, MANUAL)

    for _ in range(3):
        client.send(frames.PingFrame(0, b"12345678"))
    borne = farewells(client)
    client.send(frames.PingFrame(0, b"12345678"))
    await turns()

    [told] = farewells(client)
    assert borne == []
    assert (told.error_code, told.additional_data) == (11, b"too_many_pings")
    assert client.transport.is_over


@in_virtual_time
async def test_what_is_sent_makes_up_for_pings() -> None:
    client = Client.greeted({"most_strikes": 1, "least_between_pings_s": 10})

    for _ in range(20):
        client.send(frames.PingFrame(0, b"12345678"), frames.PingFrame(0, b"12345678"))
        client.call(LIVE, b"")

    assert farewells(client) == []


@in_virtual_time
async def test_a_connection_leaves_at_its_age_and_its_calls_have_time() -> None:
    client = Client.greeted({"age_s": 100, "grace_s": 30})
    client.call(INFER, MANUAL)

    await sleep(89)
    early = farewells(client)
    await sleep(22)
    late = farewells(client)
    is_open = not client.transport.is_over
    await sleep(30)

    assert early == []
    assert (late[0].last_stream_id, late[0].additional_data) == (2**31 - 1, b"max_age")
    assert is_open
    assert client.transport.is_over


@in_virtual_time
async def test_a_connection_that_asks_nothing_leaves() -> None:
    client = Client.greeted({"idle_s": 10})
    await sleep(8)
    client.call(LIVE, b"")

    await sleep(9)
    early = farewells(client)
    await sleep(2)
    late = farewells(client)
    await sleep(10)

    assert early == []
    assert [each.additional_data for each in late] == [b"max_idle"]
    assert client.transport.is_over


@in_virtual_time
async def test_a_connection_with_a_call_is_not_idle() -> None:
    client = Client.greeted({"idle_s": 10})
    client.call(INFER, MANUAL)

    await sleep(100)

    assert farewells(client) == []
