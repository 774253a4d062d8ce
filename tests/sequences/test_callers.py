"""Sequences over gRPC, over streams, and by models that call others."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from .stage import add, control

CALLER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        values = request.inputs()[0].as_numpy().ravel()
        for index, value in enumerate(values):
            response = pb_utils.InferenceRequest(
                model_name="sums",
                inputs=[pb_utils.Tensor("X", np.array([[value]], np.int32))],
                requested_output_names=["Y"],
                correlation_id=77,
                flags=(index == 0) * 1 + (index == len(values) - 1) * 2,
            ).exec()
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse([response.output_tensors()[0]])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tritonpy.options import ServerOptions

    root = tmp_path_factory.mktemp("callers")
    models = ModelRepository(root / "models")
    add(models, root, "sums", oldest={"max_candidate_sequences": 64})
    add(models, root, "texts", oldest={}, control_input=[control("ID", "CORRID", data_type="TYPE_STRING")])
    tensor = {"data_type": "TYPE_INT32"}
    models.python(
        "caller",
        CALLER,
        {
            "backend": "python",
            "max_batch_size": 0,
            "input": [{"name": "X", "dims": [-1], **tensor}],
            "output": [{"name": "Y", "dims": [1, 1], **tensor}],
        },
    )
    address = "127.0.0.1"
    options = ServerOptions(
        (str(models.path),),
        exit_timeout_s=0.1,  # sequences that a test leaves open would be waited for
        http_address=address,
        http_port=0,
        grpc_address=address,
        grpc_port=0,
        allow_metrics=False,
    )
    with Server(options) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def ask(request: pytest.FixtureRequest, server: Server) -> Iterator[Callable[..., int]]:
    """Ask a model with Triton's own client."""
    module: Any = tritonclient.http if request.param == "http" else tritonclient.grpc
    port = server.http_port if request.param == "http" else server.grpc_port
    client = module.InferenceServerClient(f"127.0.0.1:{port}")

    def send(model: str, values: list[int], *, rows: bool = True, **options: Any) -> int:
        array = np.array([values] if rows else values, np.int32)
        tensor = module.InferInput("X", array.shape, "INT32")
        tensor.set_data_from_numpy(array)
        return int(client.infer(model, [tensor], **options).as_numpy("Y").item())

    yield send
    client.close()


def test_clients_send_sequences(ask: Callable[..., int]) -> None:
    sums = [
        ask("sums", [value], sequence_id=11, sequence_start=value == 1, sequence_end=value == 4)
        for value in (1, 2, 3, 4)
    ]

    assert sums == [1, 3, 6, 10]
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        ask("sums", [5], sequence_id=11)


def test_an_id_may_be_text(ask: Callable[..., int]) -> None:
    assert ask("texts", [1], sequence_id="größe", sequence_start=True) == 1
    assert ask("texts", [2], sequence_id="größe", sequence_end=True) == 3
    with pytest.raises(InferenceServerException, match="data-type is 'UINT64', but model 'texts' expects"):
        ask("texts", [1], sequence_id=5, sequence_start=True)


def test_a_model_that_calls_another_one_sends_sequences(ask: Callable[..., int]) -> None:
    assert ask("caller", [1, 2, 3, 4], rows=False) == 10


def test_sequences_that_share_a_stream_are_interleaved(server: Server) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    client.start_stream(lambda result, error: answers.put((result, error)))
    for step in range(5):
        for sequence in range(1, 21):
            tensor = tritonclient.grpc.InferInput("X", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.array([[sequence]], np.int32))
            client.async_stream_infer(
                "sums",
                [tensor],
                request_id=f"{sequence}.{step}",
                sequence_id=1000 + sequence,
                sequence_start=step == 0,
                sequence_end=step == 4,
            )
    sums: dict[str, int] = {}
    for _ in range(100):
        result, error = answers.get(timeout=DEADLINE_S)
        assert error is None
        sums[result.get_response().id] = int(result.as_numpy("Y").item())
    client.stop_stream()
    client.close()

    assert sums == {f"{s}.{step}": s * (step + 1) for s in range(1, 21) for step in range(5)}


def test_the_server_says_that_it_knows_sequences(server: Server) -> None:
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        extensions = client.get_server_metadata()["extensions"]

    assert extensions[:5] == [
        "classification",
        "sequence",
        "model_repository",
        "model_repository(unload_dependents)",
        "schedule_policy",
    ]
