"""Thousands of connections that ask nothing: a server has them for little memory and no work."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from tritonpy.frontends.grpc.native.listener import _SHARE
from tritonpy.frontends.sockets import most_connections, raise_descriptor_limit
from tritonpy_sdk.testing import until

from .raw import ACK, PREFACE, SETTINGS, Http2Client, call, frame, settings

MOST_CONNECTIONS = 10_000  # as far as descriptors go
OTHERS = 100  # descriptors of a server without clients
MOST_KIB = 60  # of each
MOST_CPU_S = 0.5  # of all, in a second in which nothing happens


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_idle_connections_take_little_memory_and_no_work(
    corectl: Callable[..., Any], tmp_path: Path, dial: Callable[..., Http2Client]
) -> None:
    raise_descriptor_limit()
    count = most_connections(MOST_CONNECTIONS, _SHARE, MOST_CONNECTIONS) - 1  # beside the one that asks
    server = corectl(
        f"--model-repository={tmp_path}", "--grpc-transport=native", f"--grpc-max-connections={count + 1}"
    )
    process = psutil.Process(server.process.pid)
    first = dial(server.grpc_port)
    first.greet()
    streams = itertools.count(1, 2)

    def asks() -> None:
        stream = next(streams)
        first.send(call(stream))
        assert first.answer(stream).status == 0

    asks()
    before = process.memory_info().rss

    with ExitStack() as stack:
        for number in range(count):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.grpc_port), timeout=30))
            idle.sendall(PREFACE + settings() + frame(SETTINGS, ACK) + call())
            if number % 1000 == 0:
                asks()
        until(lambda: process.num_fds() > count)
        asks()
        assert process.num_fds() < count + OTHERS
        kib = (process.memory_info().rss - before) / 1024 / count
        begun = process.cpu_times()
        time.sleep(1)
        ended = process.cpu_times()
        asks()

    assert 0 < kib < MOST_KIB
    assert ended.user + ended.system - begun.user - begun.system < MOST_CPU_S
    until(lambda: process.num_fds() < OTHERS)
