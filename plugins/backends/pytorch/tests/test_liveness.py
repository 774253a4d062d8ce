"""The server answers others while a model computes, whichever kind of model it is."""

from __future__ import annotations

import http.client
import threading

import numpy as np
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

torch = pytest.importorskip("torch")

SIZE = 1024

SOURCE = """
import torch


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = (x @ x).tanh()
        return x[:1, :1]
"""


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = (x @ x).tanh()
        return x[:1, :1]


@pytest.fixture(scope="module")
def server(tmp_path_factory, scripted, exported):
    def tensor(name, dims):
        return {"name": name, "data_type": "TYPE_FP32", "dims": dims}

    config = {
        "backend": "pytorch",
        "input": [tensor("x", [SIZE, SIZE])],
        "output": [tensor("OUTPUT__0", [1, 1])],
        "parameters": {"INTRA_OP_THREAD_COUNT": {"string_value": "1"}},
    }
    root = tmp_path_factory.mktemp("models")
    repository = ModelRepository(root)
    repository.model("script", config, {"model.pt": scripted(Net())})
    repository.model("program", config, {"model.pt2": exported(Net(), (torch.ones(SIZE, SIZE),))})
    repository.model("source", config | {"runtime": "model.py"}, {"model.py": SOURCE})
    options = ServerOptions(
        (str(root),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    with Server(options) as started:
        yield started


@pytest.mark.parametrize("name", ["script", "program", "source"])
def test_a_long_call_does_not_stop_the_server(server, name):
    x = tritonclient.http.InferInput("x", [SIZE, SIZE], "FP32")
    x.set_data_from_numpy(np.full((SIZE, SIZE), 0.01, "f4"))
    under_way = []

    def ask():
        with tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}", network_timeout=60
        ) as client:
            client.infer(name, [x])  # the first call of a TorchScript model compiles it
            under_way.append(name)
            client.infer(name, [x])
            under_way.clear()

    asking = threading.Thread(target=ask)
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
    answered = 0
    asking.start()
    while asking.is_alive():
        is_inside = bool(under_way)
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        answered += is_inside and bool(under_way)
    asking.join()
    connection.close()

    # A call that held the interpreter's lock would let one answer through before it and none while it runs.
    assert answered > 5
