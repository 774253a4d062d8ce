"""A gRPC server on a loop of its own, in front of a data plane that tests steer by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
import pytest
import uvloop
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.admission import Admission
from tritonpy.frontends.grpc.transports import GrpcServer, grpc_server
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import GrpcTransport, ServerOptions
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy_sdk.testing import DEADLINE_S

from ..data_plane import FakeDataplane, infer_request
from .streams import Stream

Result = TypeVar("Result")

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Harness:
    """A running server and ways to talk to it.

    Attributes:
        dataplane: what the server asks.
        server: the server; touch it on its loop only.
        port: where it listens.
        channel, stub: a synchronous client.
    """

    def __init__(self, transport: GrpcTransport, **options: Any) -> None:
        self.transport = transport
        self.dataplane = FakeDataplane()
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="server")
        self._thread.start()
        self.server = self.run(self._start(options))
        self.port = self.server.port
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", options=UNLIMITED)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, work: Any) -> Any:
        """Run a coroutine on the server's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on the server's loop and return its result."""

        async def called() -> Result:
            return function(*arguments)

        result: Result = self.run(called())
        return result

    def close(self) -> None:
        self.channel.close()
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def new_server(
        self, address: str = "127.0.0.1", port: int = 0, max_inflight_byte_size: int = 0, **options: Any
    ) -> GrpcServer:
        """A server of the same data plane that has not started."""
        server_options = ServerOptions(
            (), grpc_address=address, grpc_port=port, grpc_transport=self.transport, **options
        )
        services = FrontendServices(Admission(max_inflight_byte_size), SharedMemoryRegions(is_allowed=True))
        return grpc_server(self.dataplane, services, server_options)

    async def _start(self, options: dict[str, Any]) -> GrpcServer:
        server = self.new_server(**options)
        await server.start()
        return server

    async def _end(self) -> None:
        await self.server.stop(0)
        # grpcio may still hear of what it has just sent. Where the loop is closed by then, that is an error
        # in the log of whichever test comes next.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=DEADLINE_S)


@pytest.fixture(params=["grpcio", "native"])
def transport(request: pytest.FixtureRequest) -> GrpcTransport:
    """What moves the bytes."""
    if request.param == "native":
        pytest.importorskip("ngh2")
    chosen: GrpcTransport = request.param
    return chosen


@pytest.fixture
def harness(transport: GrpcTransport) -> Iterator[Harness]:
    harness = Harness(transport)
    yield harness
    harness.close()


@pytest.fixture
def start_harness(transport: GrpcTransport) -> Iterator[Callable[..., Harness]]:
    """Start a server with options of the test's own."""
    started: list[Harness] = []

    def start(**options: Any) -> Harness:
        started.append(Harness(transport, **options))
        return started[-1]

    yield start
    for harness in started:
        harness.close()


@pytest.fixture
def stream(harness: Any) -> Iterator[Stream]:
    stream = Stream(harness.stub)
    yield stream
    stream.half_close()
    stream.call.cancel()


@pytest.fixture
def make_request() -> Callable[..., service_pb2.ModelInferRequest]:
    """Build a request with one FP32 input."""
    return infer_request
