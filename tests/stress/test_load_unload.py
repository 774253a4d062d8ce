"""Two hundred loads and unloads over the API of a server: nothing of a model stays behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .allocators import make_findable
from .clients import HttpClient
from .holdings import MOST_GROWTH, WARM_UP_ROUNDS, Watch

ROUNDS = 250
MOST_ROUNDS = 1000  # of a server that seems to grow: what it holds for a while is less and less a round
WIDTH = 1024  # 4 MiB of weights
CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, WIDTH]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1, WIDTH]}],
}
MODEL = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.weights = np.eye(1024, dtype=np.float32) * 2

        def execute(self, requests):
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x @ self.weights)]))
            return responses
"""


def doubling() -> bytes:
    """An ONNX model that multiplies by a matrix of 4 MiB."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "W"], ["Y"])],
        "doubling",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["N", WIDTH])],
        [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32) * 2, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = onnx.ModelProto.SerializeToString(model)
    return content


def ask(client: HttpClient, model: str) -> None:
    """Send a request that must be answered right."""
    x = np.ones((2, WIDTH), np.float32)
    y, error = client.infer(model, x)
    assert y is not None, error
    assert y[0] == 2.0


def load(client: HttpClient, model: str) -> None:
    status, _, body = client.ask("POST", f"/v2/repository/models/{model}/load", b"{}")
    assert status == 200, body


def unload(client: HttpClient, model: str) -> None:
    """Unload a model and wait until it has been finalised."""
    status, _, body = client.ask("POST", f"/v2/repository/models/{model}/unload", b"{}")
    assert status == 200, body

    def states() -> set[str]:
        index = json.loads(client.ask("POST", "/v2/repository/index", b"{}")[2])
        return {entry.get("state", "") for entry in index if entry["name"] == model}

    until(lambda: states() <= {"UNAVAILABLE", ""}, states)


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "malloc"), [("onnx", ""), ("onnx", "tcmalloc"), ("onnx", "jemalloc"), ("python", "")]
)
def test_two_hundred_loads_and_unloads_leave_nothing_behind(
    corectl: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    progress: Callable[[str], None],
    kind: str,
    malloc: str,
) -> None:
    if malloc:
        make_findable(malloc, monkeypatch)
    models = ModelRepository(tmp_path)
    models.python("resident", MODEL, CONFIG)
    if kind == "onnx":
        models.onnx("changing", doubling())
    else:
        models.python("changing", MODEL, CONFIG)
    server = corectl(
        "--model-repository",
        str(tmp_path),
        "--model-control-mode=explicit",
        "--load-model=resident",
        *([f"--malloc={malloc}"] if malloc else []),
    )
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert [name for name in ("tcmalloc", "jemalloc") if name in maps] == ([malloc] if malloc else [])
    client = HttpClient(server.ports["HTTPService"])
    started = time.monotonic()
    watches: list[Watch] = []

    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and all(watch.growth < MOST_GROWTH for watch in watches):
            break
        if number == WARM_UP_ROUNDS:
            watches = Watch.with_children(server.process.pid)
        load(client, "changing")
        ask(client, "changing")
        ask(client, "resident")
        unload(client, "changing")
        for watch in watches:
            watch.sample()
    took_s = time.monotonic() - started
    allocator = malloc or "the allocator of the system"
    progress(f"{len(watches[0].resident)} rounds of {kind} with {allocator} in {took_s:.0f} s")
    for watch in watches:
        progress(watch.check())
    client.close()

    assert len(watches) == 2  # the server and the worker of the model that stays
    assert server.stop() == 0
