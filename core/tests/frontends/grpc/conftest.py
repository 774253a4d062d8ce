"""A gRPC server on a loop of its own, in front of a data plane that tests steer by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import grpc
import pytest
import uvloop
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.dataplane import TensorSpec
from tritonpy.errors import NotFound, TritonError
from tritonpy.frontends.admission import Admission
from tritonpy.frontends.grpc.server import GrpcServer
from tritonpy.frontends.grpc.settings import GrpcSettings
from tritonpy.frontends.services import FrontendServices
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.shared_memory.registry import SharedMemoryRegions

from .streams import Stream

Result = TypeVar("Result")

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class FakeDataplane:
    """Answers as its model names say; see `infer`.

    Attributes:
        requests: what `manual` and `decoupled` were asked and the test has to answer.
        cancelled: ids of requests that were cancelled.
    """

    def __init__(self) -> None:
        self.requests: list[InferRequest] = []
        self.cancelled: list[str] = []
        self.arrived = threading.Condition()
        self.seen: InferRequest | None = None
        self.is_up = True
        self.config: dict[str, Any] = {"name": "echo", "backend": "identity", "max_batch_size": 8}

    def is_live(self) -> bool:
        return self.is_up

    def is_ready(self) -> bool:
        return self.is_up

    async def model_ready(self, name: str, version: str = "") -> bool:
        return name != "nope"

    def server_metadata(self) -> dict[str, Any]:
        return {"name": "triton", "version": "1.2.3", "extensions": ["statistics"]}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        self._find(name)
        tensor = {"datatype": "FP32", "shape": [-1, 4]}
        return {
            "name": name,
            "versions": ["1", "3"],
            "platform": "identity",
            "inputs": [{"name": "INPUT0", **tensor}],
            "outputs": [{"name": "OUTPUT0", **tensor}],
        }

    def find(self, name: str, version: str = "") -> FakeModel:
        self._find(name)
        return FakeModel(self, name)

    def model_statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        leaf = {"count": 2, "ns": 5_000_000_000_000}
        statistics = {"success": leaf, "queue": leaf}
        return {
            "model_stats": [
                {
                    "name": name or "echo",
                    "version": "1",
                    "last_inference": 1_700_000_000_000,
                    "inference_count": 2,
                    "execution_count": 2,
                    "inference_stats": statistics,
                    "response_stats": {"0": {"success": leaf}},
                    "batch_stats": [{"batch_size": 1, "compute_infer": leaf}],
                    "memory_usage": [],
                }
            ]
        }

    async def repository_index(self, ready: bool = False) -> list[dict[str, Any]]:
        return []

    def check_model_control(self) -> None:
        pass

    async def load_model(
        self,
        name: str,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        *,
        force: bool = False,
    ) -> None:
        self._find(name)

    async def unload_model(self, name: str, unload_dependents: bool = False) -> None:
        pass

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        """`echo` answers at once, `manual` and `decoupled` wait for the test, others fail in their ways."""
        self.seen = request
        request.ticket.sink = sink
        if request.model_name == "crash":
            raise RuntimeError("boom")
        request.ticket.on_cancel = self
        request.model_version = request.model_version or "3"
        if request.model_name == "echo":
            request.deliver(echo(request))
        elif request.model_name == "fails":
            request.fail(TritonError("the model says no", code=NotFound.code))
        elif request.model_name == "dropped":
            pass
        else:
            with self.arrived:
                self.requests.append(request)
                self.arrived.notify_all()

    def request_cancelled(self, request: InferRequest) -> None:
        with self.arrived:
            self.cancelled.append(request.id)
            self.arrived.notify_all()

    def wait_for(self, condition: Callable[[FakeDataplane], bool]) -> None:
        """Wait until requests have come or were cancelled as the test expects."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: condition(self), timeout=20)

    def _find(self, name: str) -> None:
        if name == "nope":
            raise NotFound(f"Request for unknown model: '{name}' is not found")


class FakeModel:
    """A model of a `FakeDataplane`; satisfies `ServedModel`."""

    version = 3
    max_batch_size = 0
    inputs: ClassVar[dict[str, TensorSpec]] = {}
    outputs: ClassVar[dict[str, TensorSpec]] = {}
    labels: ClassVar = {"OUTPUT0": (b"zero", b"one")}

    def __init__(self, dataplane: FakeDataplane, name: str) -> None:
        self.name = name
        self.is_decoupled = name == "decoupled"
        self.config = dataplane.config
        self.infer = dataplane.infer


def echo(request: InferRequest, **more: Any) -> InferResponse:
    """A response with every input under the matching output's name."""
    return InferResponse(
        [tensor.renamed(name.replace("INPUT", "OUTPUT")) for name, tensor in request.inputs.items()], **more
    )


class Harness:
    """A running server and ways to talk to it.

    Attributes:
        dataplane: what the server asks.
        server: the server; touch it on its loop only.
        port: where it listens.
        channel, stub: a synchronous client.
    """

    def __init__(self, **options: Any) -> None:
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
        settings = GrpcSettings(address, port, **options)
        services = FrontendServices(Admission(max_inflight_byte_size), SharedMemoryRegions(is_allowed=True))
        return GrpcServer(self.dataplane, services, settings)

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
            await asyncio.wait(tasks, timeout=20)


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.close()


@pytest.fixture
def start_harness() -> Iterator[Callable[..., Harness]]:
    """Start a server with options of the test's own."""
    started: list[Harness] = []

    def start(**options: Any) -> Harness:
        started.append(Harness(**options))
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

    def make(model: str = "echo", data: bytes = bytes(8), **more: Any) -> service_pb2.ModelInferRequest:
        message = service_pb2.ModelInferRequest(model_name=model, **more)
        message.inputs.add(name="INPUT0", datatype="FP32", shape=[len(data) // 4])
        message.raw_input_contents.append(data)
        return message

    return make
