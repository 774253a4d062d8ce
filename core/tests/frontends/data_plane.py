"""A data plane that tests steer by hand, and requests to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tritonclient.grpc import service_pb2
from tritonpy.dataplane import TensorSpec
from tritonpy.errors import NotFound, TritonError
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy_sdk.testing import DEADLINE_S


class FakeDataplane:
    """Answers as its model names say; see `infer`.

    Attributes:
        requests: what `manual` and `decoupled` were asked and the test has to answer.
        cancelled: ids of requests that were cancelled.
        inputs: of every model.
    """

    def __init__(self) -> None:
        self.requests: list[InferRequest] = []
        self.cancelled: list[str] = []
        self.arrived = threading.Condition()
        self.seen: InferRequest | None = None
        self.is_up = True
        self.inputs: dict[str, TensorSpec] = {}
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
            assert self.arrived.wait_for(lambda: condition(self), timeout=DEADLINE_S)

    def _find(self, name: str) -> None:
        if name == "nope":
            raise NotFound(f"Request for unknown model: '{name}' is not found")


class FakeModel:
    """A model of a `FakeDataplane`; satisfies `ServedModel`."""

    version = 3
    max_batch_size = 0
    outputs: ClassVar[dict[str, TensorSpec]] = {}
    labels: ClassVar = {"OUTPUT0": (b"zero", b"one")}

    def __init__(self, dataplane: FakeDataplane, name: str) -> None:
        self.name = name
        self.is_decoupled = name == "decoupled"
        self.config = dataplane.config
        self.inputs = dataplane.inputs
        self.infer = dataplane.infer


def echo(request: InferRequest, **more: Any) -> InferResponse:
    """A response with every input under the matching output's name."""
    return InferResponse(
        [tensor.renamed(name.replace("INPUT", "OUTPUT")) for name, tensor in request.inputs.items()], **more
    )


def infer_request(model: str = "echo", data: bytes = bytes(8), **more: Any) -> service_pb2.ModelInferRequest:
    """A request with one FP32 input."""
    message = service_pb2.ModelInferRequest(model_name=model, **more)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[len(data) // 4])
    message.raw_input_contents.append(data)
    return message
