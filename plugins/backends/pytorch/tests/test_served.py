"""Models of a repository, served over HTTP and gRPC to the clients that people have."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

torch = pytest.importorskip("torch")
from torch.export import Dim  # noqa: E402

EAGER = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)
"""

WHERE = """
import os

import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.tensor([os.getpid()])
"""


@pytest.fixture(scope="module")
def layer():
    torch.manual_seed(1)
    return torch.nn.Linear(4, 3)


@pytest.fixture(scope="module")
def server(tmp_path_factory, scripted, exported, layer):
    root = tmp_path_factory.mktemp("models")
    repository = ModelRepository(root)
    repository.model(
        "script",
        {
            "platform": "pytorch_libtorch",
            "max_batch_size": 8,
            "dynamic_batching": {},
            "input": [{"name": "INPUT__0", "data_type": "TYPE_FP32", "dims": [4]}],
            "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [3]}],
        },
        {"model.pt": scripted(layer)},
    )
    program = exported(layer, (torch.ones(2, 4),), shapes=({0: Dim("batch", max=64)},))
    repository.model("program", None, {"model.pt2": program})
    weights = {f"linear.{name}": tensor for name, tensor in layer.state_dict().items()}
    path = root / "eager/1"
    repository.model(
        "eager",
        {
            "backend": "pytorch",
            "runtime": "model.py",
            "max_batch_size": 8,
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [3]}],
        },
        {"model.py": EAGER},
    )
    torch.save(weights, path / "model.pt")
    with Server(options(root)) as started:
        yield started


def options(root):
    """A server for one repository, on free ports."""
    return ServerOptions(
        (str(root),),
        http_address="127.0.0.1",
        http_port=0,
        grpc_address="127.0.0.1",
        grpc_port=0,
        allow_metrics=False,
    )


NAMES = {"script": ("INPUT__0", "OUTPUT__0"), "program": ("input", "OUTPUT__0"), "eager": ("IN", "OUT")}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("client", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def test_clients_get_what_pytorch_computes(server, layer, client, name):
    given, made = NAMES[name]
    port = server.http_port if client is tritonclient.http else server.grpc_port
    x = np.random.default_rng(1).normal(size=(4, 4)).astype("f4")
    tensor = client.InferInput(given, list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)

    with client.InferenceServerClient(f"127.0.0.1:{port}") as connection:
        out = connection.infer(name, [tensor]).as_numpy(made)

    with torch.inference_mode():
        np.testing.assert_allclose(out, layer(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("isolation", "is_inside"), [(None, False), ("thread", True)])
def test_python_code_runs_in_a_process_of_its_own_unless_told_otherwise(tmp_path, isolation, is_inside):
    parameters = {"TRITONPY_ISOLATION": {"string_value": isolation}} if isolation else {}
    config = {
        "backend": "pytorch",
        "runtime": "model.py",
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "pid", "data_type": "TYPE_INT64", "dims": [1]}],
        "parameters": parameters,
    }
    ModelRepository(tmp_path).model("where", config, {"model.py": WHERE})
    tensor = tritonclient.http.InferInput("x", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, "f4"))

    with (
        Server(options(tmp_path)) as started,
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{started.http_port}") as connection,
    ):
        pid = connection.infer("where", [tensor]).as_numpy("pid")[0]

    assert bool(pid == os.getpid()) is is_inside
