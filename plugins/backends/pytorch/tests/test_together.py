"""PyTorch models with what else a server does: ensembles, calls of Python models, warm-up."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

torch = pytest.importorskip("torch")
from torch.export import Dim  # noqa: E402

CALLS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            call = pb_utils.InferenceRequest(
                model_name="program", requested_output_names=["scores"], inputs=[x]
            )
            scores = pb_utils.get_output_tensor_by_name(call.exec(), "scores")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", scores.as_numpy() + 1)]))
        return responses
"""


class Doubles(torch.nn.Module):
    def forward(self, x):
        return {"scores": x * 2}


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(10)


def tensor(name, **more):
    return {"name": name, "data_type": "TYPE_FP32", "dims": [2], **more}


def step(name, inputs, outputs):
    return {"model_name": name, "model_version": -1, "input_map": inputs, "output_map": outputs}


@pytest.fixture(scope="module")
def server(tmp_path_factory, exported, scripted):
    root = tmp_path_factory.mktemp("models")
    repository = ModelRepository(root)
    repository.model(
        "program",
        {
            "backend": "pytorch",
            "max_batch_size": 4,
            "model_warmup": [  # one that fails would fail the load
                {
                    "name": "rows",
                    "batch_size": 2,
                    "count": 3,
                    "inputs": {"x": {"data_type": "TYPE_FP32", "dims": [2], "random_data": True}},
                }
            ],
        },
        {"model.pt2": exported(Doubles(), (torch.ones(2, 2),), shapes=({0: Dim("batch")},))},
    )
    repository.model(
        "writes",
        {"backend": "pytorch", "max_batch_size": 4, "input": [tensor("x")], "output": [tensor("OUT__0")]},
        {"model.pt": scripted(Writes())},
    )
    base = {"max_batch_size": 4, "input": [tensor("x")]}
    repository.python("calls", CALLS, base | {"backend": "python", "output": [tensor("y")]})
    steps = [
        step("writes", {"x": "x"}, {"OUT__0": "tens"}),
        step("program", {"x": "x"}, {"scores": "twos"}),
        step("program", {"x": "tens"}, {"scores": "twenties"}),
    ]
    outputs = [tensor("tens"), tensor("twos"), tensor("twenties")]
    repository.model(
        "both", base | {"platform": "ensemble", "output": outputs, "ensemble_scheduling": {"step": steps}}
    )
    options = ServerOptions(
        (str(root),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    with Server(options) as started:
        yield started


def ask(server, name):
    x = tritonclient.http.InferInput("x", [1, 2], "FP32")
    x.set_data_from_numpy(np.array([[1, 2]], "f4"))
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        answer = client.infer(name, [x])
        return {
            each["name"]: answer.as_numpy(each["name"]).tolist() for each in answer.get_response()["outputs"]
        }


def test_an_ensemble_hands_tensors_on_and_a_model_that_writes_to_its_input_spoils_nobody_s(server):
    assert ask(server, "both") == {"tens": [[10, 20]], "twos": [[2, 4]], "twenties": [[20, 40]]}


def test_a_python_model_calls_a_pytorch_model(server):
    assert ask(server, "calls") == {"y": [[3, 5]]}
