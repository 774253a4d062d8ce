"""The server answers others while a model computes, whichever kind of model it is."""

from __future__ import annotations

import http.client
import threading
import time

import numpy as np
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

torch = pytest.importorskip("torch")

SIZE, TIMES = 1024, 8

SOURCE = f"""
import torch


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range({TIMES}):
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
    took = []

    def ask():
        with tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}", network_timeout=60
        ) as client:
            client.infer(name, [x])  # the first call of a TorchScript model compiles it
            client.infer(name, [x])
            begin = time.perf_counter()
            client.infer(name, [x])
            took.append((begin, time.perf_counter()))

    asking = threading.Thread(target=ask)
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
    waits = []
    asking.start()
    while asking.is_alive():
        begin = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        waits.append((begin, time.perf_counter() - begin))
    asking.join()
    connection.close()

    ((begin, end),) = took
    inside = [wait for at, wait in waits if begin < at < end]
    # A call that held the interpreter's lock would let one answer through, and that at its end.
    assert len(inside) > 5
    assert max(inside) < (end - begin) / 2
