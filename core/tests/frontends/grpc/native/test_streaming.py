"""Calls of many messages on one connection, driven by hand."""

from __future__ import annotations

import asyncio
from asyncio import sleep

import pytest

from ....simulator.virtual_loop import in_virtual_time, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

from .hand_driven import STREAM_INFER, Client, message

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
