"""Thousands of connections that ask nothing: a server has them for little memory and no work."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from tritonpy.frontends.sockets import raise_descriptor_limit
from tritonpy_sdk.testing import until

from .raw import ACK, PREFACE, SETTINGS, Http2Client, call, frame, settings

CONNECTIONS = 4000
MOST_KIB = 60  # of each
MOST_CPU_S = 0.5  # of all, in a second in which nothing happens


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_idle_connections_take_little_memory_and_no_work(
    corectl: Callable[..., Any], tmp_path: Path, dial: Callable[..., Http2Client]
) -> None:
    raise_descriptor_limit()
    server = corectl(
        f"--model-repository={tmp_path}", "--grpc-transport=native", "--grpc-max-connections=5000"
    )
    process = psutil.Process(server.process.pid)
    first = dial(server.grpc_port)
    first.greet()
    first.send(call())
    assert first.answer().status == 0
    before = process.memory_info().rss

    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.grpc_port), timeout=30))
            idle.sendall(PREFACE + settings() + frame(SETTINGS, ACK) + call())
        until(lambda: len(process.net_connections()) > CONNECTIONS)
        first.send(call(3))
        assert first.answer(3).status == 0
        kib = (process.memory_info().rss - before) / 1024 / CONNECTIONS
        begun = process.cpu_times()
        time.sleep(1)
        ended = process.cpu_times()
        first.send(call(5))
        assert first.answer(5).status == 0

    assert kib < MOST_KIB
    assert ended.user + ended.system - begun.user - begun.system < MOST_CPU_S
    until(lambda: len(process.net_connections()) < CONNECTIONS // 2)
