"""Connections to replicas that take few calls at a time, end at once, or read nothing."""

from __future__ import annotations

import asyncio
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_router.grpc_client.header_blocks import encoded
from tritonpy_router.grpc_client.pool import GrpcPool
from tritonpy_router.membership import StaticMembership
from tritonpy_router.options import RouterOptions
from tritonpy_router.replica import Place
from tritonpy_sdk.testing import DEADLINE_S
from tritonpy_sdk.testing.patience import until_async

from .conftest import RouterThread, local_ports, place_of
from .test_client_engine import RST_STREAM, SETTINGS, WINDOW_UPDATE, Told, frame, number

MOST = 4
MOST_STREAMS, INITIAL_WINDOW = 3, 4
BLOCK = encoded([(b":path", b"/x"), (b"te", b"trailers")])


@pytest.fixture(scope="module")
def router(models: Path) -> Iterator[RouterThread]:
    """A router before one server that takes four calls of a connection at a time."""
    with ExitStack() as stack:
        ports = local_ports(
            model_control_mode="explicit",
            load_models=("echo",),
            exit_timeout_s=0,
            grpc_max_concurrent_streams=MOST,
        )
        server = stack.enter_context(Server(ServerOptions((str(models),), **ports)))
        options = RouterOptions(
            ports=ServerOptions((), **local_ports()), probe_interval_s=0.02, exit_timeout_s=0
        )
        made = RouterThread(options, StaticMembership([place_of("a", server)]))
        made.start()
        stack.callback(made.stop)
        made.wait_until_ready(1)
        yield made


def tensor() -> Any:
    values = np.ones((1, 2), np.float32)
    made = tritonclient.grpc.InferInput("INPUT0", values.shape, "FP32")
    made.set_data_from_numpy(values)
    return made


def test_many_calls_at_once_are_answered_by_a_replica_that_takes_few(router: RouterThread) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(router.grpc) as client:
        for _ in range(3):
            for _ in range(60):
                client.async_infer("echo", [tensor()], lambda result, error: answers.put(error))
            assert [answers.get(timeout=DEADLINE_S) for _ in range(60)] == [None] * 60


def test_streams_that_stay_open_are_all_answered_by_a_replica_that_takes_few(router: RouterThread) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with ExitStack() as stack:
        for _ in range(3 * MOST):
            client = stack.enter_context(tritonclient.grpc.InferenceServerClient(router.grpc))
            client.start_stream(lambda result, error: answers.put(error))
            client.async_stream_infer("echo", [tensor()])

        assert [answers.get(timeout=DEADLINE_S) for _ in range(3 * MOST)] == [None] * 3 * MOST


# Without a router.


class Port:
    """A port of HTTP/2 that sends some bytes to each connection and reads nothing, or does more."""

    def __init__(self, greeting: bytes, then: Callable[[socket.socket], None] | None = None) -> None:
        self.greeting = greeting
        self.then = then
        self.connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = Place("a", "127.0.0.1", 1, self._listening.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listening.close()
        for connection in self.connections:
            connection.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            connection.sendall(self.greeting)
            if self.then is not None:
                self.then(connection)


@pytest.fixture
def port() -> Iterator[Callable[..., Port]]:
    with ExitStack() as stack:

        def make(*arguments: Any) -> Port:
            made = Port(*arguments)
            stack.callback(made.close)
            return made

        yield make


def most_streams(count: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", MOST_STREAMS, count))


async def test_calls_that_wait_together_share_as_many_connections_as_they_need(
    port: Callable[..., Port],
) -> None:
    pool = GrpcPool(port(most_streams(MOST)).place, None)

    async def begin() -> Any:
        connection = await pool.connect()
        return connection, connection.begin(BLOCK, Told())

    begun = await asyncio.gather(*(begin() for _ in range(3 * MOST - 1)))

    connections = [connection for connection, _ in begun]
    assert [connections.count(each) for each in dict.fromkeys(connections)] == [MOST, MOST, MOST - 1]
    assert all(stream.number for _, stream in begun)  # each has begun
    pool.drop()


async def test_a_replica_that_takes_no_calls_is_not_connected_to_for_ever(port: Callable[..., Port]) -> None:
    closed = port(most_streams(0))
    pool = GrpcPool(closed.place, None)

    for _ in range(3):
        with pytest.raises(ConnectionRefusedError, match="takes no calls"):
            await pool.connect()

    assert not pool.take()
    assert [connection.makefile("rb").read()[:3] for connection in closed.connections] == [b"PRI"] * 3


async def test_a_replica_that_ends_a_connection_before_it_begins_is_unreachable(
    port: Callable[..., Port],
) -> None:
    pool = GrpcPool(port(b"", lambda connection: connection.close()).place, None)

    with pytest.raises(ConnectionError):
        await pool.connect()


async def test_what_breaks_the_protocol_ends_a_connection_whose_replica_reads_nothing(
    port: Callable[..., Port],
) -> None:
    large = (1 << 31) - 1
    windows = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, large))
    broken = port(windows + frame(WINDOW_UPDATE, 0, 0, number(large - 65_535)))
    pool = GrpcPool(broken.place, None)
    connection = await pool.connect()
    call = Told()
    stream = connection.begin(BLOCK, call)
    connection.data(stream, bytes(64 << 20))
    await asyncio.sleep(0)  # as much as fits is sent

    broken.connections[0].sendall(frame(RST_STREAM, 0, stream.number, number(0)[:1]))

    await until_async(lambda: call.over)
    assert call.over == [None]
