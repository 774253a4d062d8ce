"""What gRPC itself is told: compression, pings, the age of connections, shared ports, sizes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.frontends.grpc.grpcio.options import channel_arguments
from tritonpy.frontends.reserve import PLACES
from tritonpy.options import ServerOptions
from tritonpy_sdk.testing import DEADLINE_S, until

DATA = np.tile(np.arange(64, dtype=np.float32), 4000).tobytes()  # a megabyte that compresses well


class Wire:
    """Stands between a client and a server, and counts what the server sends."""

    def __init__(self, port: int) -> None:
        self.received_byte_size = 0
        self.has_server_left = threading.Event()
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):  # the other side was quicker
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pump, args=(source, target, source is server))
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if counts:
                    self.received_byte_size += len(data)
                target.sendall(data)
            if counts:
                self.has_server_left.set()
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def tapped(start_harness: Callable[..., Any]) -> Iterator[Callable[..., tuple[Any, Wire]]]:
    """Start a server and a client whose bytes are counted; returns the client's stub and the counter."""
    opened: list[Any] = []

    def start(channel_options: Any = (), **options: Any) -> tuple[Any, Wire]:
        wire = Wire(start_harness(**options).port)
        channel = grpc.insecure_channel(f"127.0.0.1:{wire.port}", options=channel_options)
        opened.extend((channel, wire))
        return service_pb2_grpc.GRPCInferenceServiceStub(channel), wire

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize(("level", "most"), [("low", 0.2), ("medium", 0.2), ("high", 0.2)])
def test_responses_are_compressed_on_the_wire(
    tapped: Callable[..., Any], make_request: Callable[..., Any], level: str, most: float
) -> None:
    stub, wire = tapped(grpc_compression_level=level)

    unary = stub.ModelInfer(make_request(data=DATA), timeout=20)
    unary_byte_size = wire.received_byte_size
    streamed = list(stub.ModelStreamInfer(iter([make_request(data=DATA)] * 2), timeout=20))
    streamed_byte_size = wire.received_byte_size - unary_byte_size

    assert unary.raw_output_contents[0] == DATA
    assert [each.infer_response.raw_output_contents[0] for each in streamed] == [DATA, DATA]
    assert unary_byte_size < most * len(DATA)
    assert streamed_byte_size < most * 2 * len(DATA)


def test_without_a_level_nothing_is_compressed(
    tapped: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    stub, wire = tapped()

    stub.ModelInfer(make_request(data=DATA), timeout=20)

    assert wire.received_byte_size > len(DATA)


def test_a_client_that_cannot_decompress_gets_what_it_can_read(
    tapped: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    only_identity = [("grpc.compression_enabled_algorithms_bitset", 1)]
    stub, wire = tapped(only_identity, grpc_compression_level="high")

    answer = stub.ModelInfer(make_request(data=DATA), timeout=20)

    assert answer.raw_output_contents[0] == DATA
    assert wire.received_byte_size > len(DATA)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_of_a_stream_are_read(
    harness: Any, make_request: Callable[..., Any], compression: grpc.Compression
) -> None:
    answers = harness.stub.ModelStreamInfer(
        iter([make_request(data=DATA)] * 2), timeout=20, compression=compression
    )

    assert [each.infer_response.raw_output_contents[0] for each in answers] == [DATA, DATA]


def test_every_setting_of_pings_and_ages_reaches_grpc() -> None:
    options = ServerOptions(
        (),
        grpc_keepalive_time_ms=1,
        grpc_keepalive_timeout_ms=2,
        grpc_keepalive_permit_without_calls=True,
        grpc_http2_max_pings_without_data=3,
        grpc_http2_min_recv_ping_interval_without_data_ms=4,
        grpc_http2_max_ping_strikes=5,
        grpc_max_connection_age_ms=6,
        grpc_max_connection_age_grace_ms=7,
        grpc_reuse_port=True,
        grpc_max_connection_count=8,
        grpc_max_concurrent_streams=9,
        grpc_compression_level="high",
        idle_timeout_s=0.01,
    )

    assert dict(channel_arguments(options, 1000)) == {
        "grpc.max_send_message_length": -1,
        "grpc.max_receive_message_length": 1000,
        "grpc.per_message_decompression": 0,
        "grpc.max_allowed_incoming_connections": 8,
        "grpc.server_handshake_timeout_ms": 20_000,
        "grpc.max_concurrent_streams": 9,
        "grpc.max_connection_idle_ms": 10,
        "grpc.so_reuseport": 1,
        "grpc.default_compression_level": 3,
        "grpc.keepalive_time_ms": 1,
        "grpc.keepalive_timeout_ms": 2,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 3,
        "grpc.http2.min_ping_interval_without_data_ms": 4,
        "grpc.http2.max_ping_strikes": 5,
        "grpc.max_connection_age_ms": 6,
        "grpc.max_connection_age_grace_ms": 7,
    }


@pytest.mark.parametrize("limit", [0, 2**40])
def test_connections_live_for_ever_and_messages_have_protobufs_limit_unless_told_otherwise(
    limit: int,
) -> None:
    arguments = dict(channel_arguments(ServerOptions((), idle_timeout_s=0), limit))

    assert "grpc.max_connection_idle_ms" not in arguments
    assert "grpc.max_connection_age_ms" not in arguments
    assert "grpc.max_connection_age_grace_ms" not in arguments
    assert arguments["grpc.max_receive_message_length"] == 2**31 - 1
    assert arguments["grpc.so_reuseport"] == 0


def test_pings_are_tritons_unless_told_otherwise() -> None:
    arguments = dict(channel_arguments(ServerOptions(()), 0))

    assert {name: value for name, value in arguments.items() if "ping" in name or "keepalive" in name} == {
        "grpc.keepalive_time_ms": 7_200_000,
        "grpc.keepalive_timeout_ms": 20_000,
        "grpc.keepalive_permit_without_calls": 0,
        "grpc.http2.max_pings_without_data": 2,
        "grpc.http2.min_ping_interval_without_data_ms": 300_000,
        "grpc.http2.max_ping_strikes": 2,
    }


def test_connections_are_closed_when_they_reach_their_age(
    tapped: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    stub, wire = tapped(grpc_max_connection_age_ms=200, grpc_max_connection_age_grace_ms=200)

    with pytest.raises(grpc.RpcError) as ended:
        stub.ModelInfer(make_request("manual"), timeout=20)

    assert ended.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert wire.has_server_left.wait(20)
    assert is_live(stub)


def test_connections_beyond_the_limit_are_closed_and_those_within_go_on(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(grpc_max_connection_count=2)
    assert is_live(harness.stub)
    with contextlib.ExitStack() as stack:
        _within, beyond, *_ = (
            stack.enter_context(socket.create_connection(("127.0.0.1", harness.port), timeout=20))
            for _ in range(2 + PLACES)
        )
        with beyond.makefile("rb") as sent:
            sent.read()  # it ends, at the latest when all places beyond the limit are taken
        assert is_live(harness.stub)


def test_a_client_is_told_how_many_calls_it_may_have_open(start_harness: Callable[..., Any]) -> None:
    harness = start_harness(grpc_max_concurrent_streams=7)
    with socket.create_connection(("127.0.0.1", harness.port), timeout=20) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        with client.makefile("rb") as sent:
            head = sent.read(9)
            settings = sent.read(int.from_bytes(head[:3], "big"))

    assert head[3] == 4  # SETTINGS
    told = dict(struct.iter_unpack(">HI", settings))
    assert told[3] == 7  # SETTINGS_MAX_CONCURRENT_STREAMS


def test_a_connection_that_asks_nothing_is_closed(
    tapped: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    stub, wire = tapped(idle_timeout_s=0.2)
    assert is_live(stub)

    assert wire.has_server_left.wait(20)
    assert is_live(stub)


def is_live(stub: Any) -> bool:
    """Whether a server answers; asked again where the connection comes to its age meanwhile."""

    def ask() -> list[bool]:
        try:
            asked = service_pb2.ServerLiveRequest()
            return [stub.ServerLive(asked, timeout=DEADLINE_S, wait_for_ready=True).live]
        except grpc.RpcError:
            return []

    return until(ask)[0]


def test_servers_share_a_port_if_all_of_them_are_told_so(start_harness: Callable[..., Any]) -> None:
    first = start_harness(grpc_reuse_port=True)
    second = start_harness(grpc_reuse_port=True, port=first.port)

    async def start_alone() -> None:
        await first.new_server(port=first.port).start()

    assert second.port == first.port
    with pytest.raises(Unavailable, match=rf"Socket '127.0.0.1:{first.port}' already in use"):
        first.run(start_alone())


@pytest.mark.parametrize(
    ("address", "error", "text"),
    [
        ("192.0.2.1", Unavailable, "Socket '192.0.2.1:0' cannot be listened on"),
        ("no.such.host.invalid", InvalidArg, "cannot listen on 'no.such.host.invalid'"),
    ],
)
def test_addresses_that_cannot_be_had_are_refused_by_name(
    harness: Any, address: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        harness.run(harness.new_server(address).start())


@pytest.mark.parametrize("address", ["localhost", "0.0.0.0", "::", "[::1]"])
def test_names_and_addresses_for_all_can_be_listened_on(harness: Any, address: str) -> None:
    if ":" in address:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 here")

    async def start() -> Any:
        server = harness.new_server(address)
        await server.start()
        return server

    server = harness.run(start())
    # By the same name: where it stands for two addresses, the port may be somebody else's on the second.
    target = {"localhost": "localhost", "0.0.0.0": "127.0.0.1"}.get(address, "[::1]")
    with grpc.insecure_channel(f"{target}:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        live = stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=20).live
    harness.run(server.stop(0))

    assert live


@pytest.mark.stress
def test_messages_of_many_megabytes_go_both_ways(harness: Any, make_request: Callable[..., Any]) -> None:
    request = make_request(data=np.random.default_rng(0).bytes(24 << 20))

    unary = harness.stub.ModelInfer(request, timeout=100)
    assert unary.raw_output_contents == request.raw_input_contents
    del unary  # of each message there are several copies in this process
    [streamed] = harness.stub.ModelStreamInfer(iter([request]), timeout=100)
    assert streamed.infer_response.raw_output_contents == request.raw_input_contents
