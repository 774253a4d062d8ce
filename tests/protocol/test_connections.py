"""Connections that do nothing, and more of them than there is room for, keep nobody from asking."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy.frontends.http.connection.stalled_clients import SWEEP_S
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..servers import http_of, local_options

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n"
METADATA = b"GET /v2 HTTP/1.1\r\nHost: t\r\n\r\n"
BUSY = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\n{"
LIMIT = 4
IDLE_SWEEPS = 3


@pytest.fixture
def server(echo_models: Path) -> Iterator[Server]:
    options = local_options(
        echo_models,
        allow_grpc=False,
        allow_metrics=False,
        http_max_connection_count=LIMIT,
        idle_timeout_s=IDLE_SWEEPS * SWEEP_S,
    )
    with Server(options) as running:
        yield running


def sweep(server: Server) -> None:
    async def look() -> None:
        http_of(server).sweeper.sweep()

    asyncio.run_coroutine_threadsafe(look(), server.loop).result(60)


def connections(server: Server) -> list[Any]:
    return list(http_of(server).connections)


def test_a_connection_that_asks_nothing_is_closed_and_one_that_asks_is_not(
    server: Server, dial: Callable[..., Any]
) -> None:
    silent, idle, asking = (dial(server.http_port) for _ in range(3))
    idle.send(GET + b"\r\n")
    assert idle.answer().status == 200
    until(lambda: len(connections(server)) == 3)
    for _ in range(IDLE_SWEEPS + 1):
        assert len(connections(server)) == 3
        asking.send(GET + b"\r\n")
        assert asking.answer().status == 200
        sweep(server)
    until(lambda: len(connections(server)) == 1)

    assert silent.is_closed()
    assert idle.is_closed()
    asking.send(GET + b"\r\n")
    assert asking.answer().status == 200


def test_the_quietest_connection_makes_room_for_one_more(server: Server, dial: Callable[..., Any]) -> None:
    asked, head, silent, busy = (dial(server.http_port) for _ in range(LIMIT))
    asked.send(GET + b"\r\n")
    assert asked.answer().status == 200
    head.send(GET)
    busy.send(BUSY)
    until(lambda: len(connections(server)) == LIMIT)
    until(lambda: sum(each._reader.is_in_head for each in connections(server)) == 1)
    until(lambda: sum(each._reader.received for each in connections(server)) == 1)
    for _ in range(2):
        sweep(server)
    for closed in (head, silent):  # neither has asked anything; the first came first
        newcomer = dial(server.http_port)
        newcomer.send(GET + b"\r\n")
        assert newcomer.answer().status == 200
        assert closed.is_closed()

    asked.send(GET + b"\r\n")
    assert asked.answer().status == 200
    assert len(connections(server)) == LIMIT


def test_where_all_are_busy_a_newcomer_may_ask_for_health(server: Server, dial: Callable[..., Any]) -> None:
    busy = [dial(server.http_port) for _ in range(LIMIT)]
    for client in busy:
        client.send(BUSY)
    until(lambda: sum(each._reader.received for each in connections(server)) == LIMIT)
    for _ in range(20):  # more than the reserve has room for
        dial(server.http_port)
    probe, other = dial(server.http_port), dial(server.http_port)
    probe.send(GET + b"\r\n")
    other.send(METADATA)
    healthy, refused = probe.answer(), other.answer()

    assert (healthy.status, healthy.headers["connection"]) == (200, "close")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert refused.error == "the server has no room for more connections"
    assert probe.is_closed()
    busy[0].close()
    until(lambda: sum(each._reader.received for each in connections(server)) == LIMIT - 1)
    for client in busy[1:]:
        client.send(b"x" * 49)
        assert client.answer().status == 500  # it is no JSON
    again = dial(server.http_port)
    again.send(METADATA)
    assert again.answer().status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="this machine has one address only")
def test_a_crowd_from_one_address_does_not_displace_a_probe_from_another(
    server: Server, dial: Callable[..., Any]
) -> None:
    for _ in range(LIMIT):
        dial(server.http_port).send(BUSY)
    until(lambda: sum(each._reader.received for each in connections(server)) == LIMIT)
    probe = dial(server.http_port)
    with ExitStack() as stack:
        for _ in range(20):
            crowding = socket.create_connection(("127.0.0.1", server.http_port), 20, ("127.0.0.2", 0))
            stack.callback(crowding.close)
            crowding.sendall(GET)
        last = stack.enter_context(
            socket.create_connection(("127.0.0.1", server.http_port), 20, ("127.0.0.2", 0))
        )
        last.sendall(METADATA)
        assert b" 503 " in last.recv(100)
        probe.send(GET + b"\r\n")

        assert probe.answer().status == 200


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize("begin", [b"", GET, BUSY], ids=["silent", "in a head", "in a body"])
def test_few_descriptors_are_enough_for_health_and_metrics(
    corectl: Callable[..., Any], echo_models: Path, tmp_path: Path, begin: bytes
) -> None:
    limited = tmp_path / "corectl"
    program = Path(sys.executable).with_name("corectl")
    limited.write_text(f'#!/bin/sh\nulimit -n 128\nexec "{program}" "$@"\n')
    limited.chmod(0o755)
    server = corectl("--model-repository", echo_models, program=limited)
    health = f"http://127.0.0.1:{server.http_port}/v2/health/live"
    metrics = f"http://127.0.0.1:{server.metrics_port}/metrics"

    with ExitStack() as stack:
        for port in (server.http_port, server.metrics_port, server.grpc_port):
            for _ in range(105):
                client = socket.create_connection(("127.0.0.1", port))
                stack.callback(client.close)
                try:
                    client.sendall(begin)
                except ConnectionError:  # there was no room for it
                    continue
        for url in (health, metrics):
            with urlopen(url, timeout=60) as answer:
                assert answer.status == 200
