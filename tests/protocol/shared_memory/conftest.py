"""Servers with models, clients of them, and shared memory for the tests of regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import shared_memory
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ...servers import local_options
from . import http_cases as cases
from .memory import ClientRegion, Http, Memory

GATE = """
import os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            gate = request.request_id()
            with open(gate + ".reached", "w"):
                pass
            deadline = time.monotonic() + 20
            while not os.path.exists(gate) and time.monotonic() < deadline:
                time.sleep(0.005)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())]))
        return responses
"""

CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            assert tensor.is_cpu()
            call = pb_utils.InferenceRequest(
                model_name="numbers", requested_output_names=["OUTPUT0"], inputs=[tensor]
            )
            answer = call.exec()
            assert not answer.has_error(), answer.error().message()
            values = pb_utils.get_output_tensor_by_name(answer, "OUTPUT0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values * 2)]))
        return responses
"""


PAIRS = {
    "backend": "python",
    "max_batch_size": 2,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1024]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1024]}],
    "dynamic_batching": {"preferred_batch_size": [2], "max_queue_delay_microseconds": 20_000_000},
}


@pytest.fixture
def memory() -> Iterator[Callable[..., Memory]]:
    """Make shared memory objects, which are deleted when the test is over."""
    with ExitStack() as stack:

        def make(content: bytes = b"", byte_size: int = 64) -> Memory:
            made = Memory(content, byte_size)
            stack.callback(made.path.unlink, missing_ok=True)
            return made

        yield make


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    cases.build_models(root)
    return root


@pytest.fixture(scope="session")
def our_server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    more = ModelRepository(tmp_path_factory.mktemp("more"))
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    config = {
        "backend": "python",
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
    }
    more.python("gate", GATE, config=config)
    more.python("caller", CALLER, config=config)
    more.python("pairs", cases.IDENTITY, config=PAIRS)
    more.model("plain", {**config, "backend": "identity"})
    options = local_options(models, more.path, allow_metrics=False, allow_client_shm=True)
    with Server(options) as server:
        yield server


@pytest.fixture(scope="session")
def ours(our_server: Server) -> dict[str, int]:
    return {"http": our_server.http_port, "grpc": our_server.grpc_port}


@pytest.fixture(scope="session")
def real(models: Path, real_triton: Callable[..., dict[str, int]]) -> dict[str, int]:
    return real_triton(models)


@pytest.fixture
def http_of() -> Iterator[Callable[[int], Http]]:
    """Make `Http`; afterwards every region is forgotten."""
    with ExitStack() as stack:

        def make(port: int) -> Http:
            made = Http(port)
            stack.callback(made.connection.close)
            stack.callback(made.ask, "POST", f"{cases.SYSTEM}/unregister")
            return made

        yield make


@pytest.fixture
def stub_of() -> Iterator[Callable[[int], service_pb2_grpc.GRPCInferenceServiceStub]]:
    with ExitStack() as stack:

        def make(port: int) -> service_pb2_grpc.GRPCInferenceServiceStub:
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
            return service_pb2_grpc.GRPCInferenceServiceStub(channel)

        yield make


@pytest.fixture
def client_of() -> Iterator[Callable[[str, dict[str, int]], tuple[Any, Any]]]:
    """The module and a client of tritonclient for a protocol."""
    with ExitStack() as stack:

        def make(protocol: str, ports: dict[str, int]) -> tuple[Any, Any]:
            module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
            client = stack.enter_context(module.InferenceServerClient(f"127.0.0.1:{ports[protocol]}"))
            stack.callback(client.unregister_system_shared_memory)
            return module, client

        yield make


@pytest.fixture
def region() -> Iterator[Callable[[str, int], ClientRegion]]:
    """Make regions as a client does; they are destroyed when the test is over."""
    made: list[ClientRegion] = []

    def make(name: str, byte_size: int) -> ClientRegion:
        made.append(ClientRegion(name, byte_size))
        return made[-1]

    yield make
    for region in made:
        shared_memory.destroy_shared_memory_region(region.handle)
