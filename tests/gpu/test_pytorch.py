"""PyTorch models on a GPU: equal answers, errors of memory and of kernels, and what is left at unload."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository

pytestmark = pytest.mark.gpu

SOURCE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        torch.nn.init.ones_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, x):
        return self.layer(x)
"""
FAILING = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        if x[0, 0] > 1e6:
            return x + torch.empty(1 << 50, device=x.device)[:1]
        table = torch.arange(4.0, device=x.device)
        return table[x.long()]
"""


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("no CUDA device")
    return found


def config(**more: Any) -> dict[str, Any]:
    return {
        "backend": "pytorch",
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [more.pop("width", 3)]}],
        "instance_group": [{"kind": "KIND_GPU", "count": 1}],
    } | more


def ask(client: Any, name: str, x: Any) -> Any:
    tensor = tritonclient.http.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    return client.infer(name, [tensor]).as_numpy("OUTPUT__0")


def write_models(torch: Any, folder: Path) -> None:
    scope: dict[str, Any] = {}
    exec(SOURCE, scope)
    module = scope["Net"]().eval()
    repository = ModelRepository(folder)
    repository.model("source", config(runtime="model.py"), {"model.py": SOURCE})
    script, program = io.BytesIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.trace(module, torch.ones(2, 4)), script)
    repository.model("script", config(), {"model.pt": script.getvalue()})
    shapes = ({0: torch.export.Dim("batch", max=64)},)
    torch.export.save(torch.export.export(module, (torch.ones(2, 4),), dynamic_shapes=shapes), program)
    repository.model("program", config(), {"model.pt2": program.getvalue()})
    threads = {"TRITONPY_ISOLATION": {"string_value": "thread"}}
    repository.model("threads", config(parameters=threads), {"model.pt2": program.getvalue()})
    repository.model("failing", config(runtime="model.py", width=4), {"model.py": FAILING})


@pytest.fixture
def client(torch: Any, corectl: Callable[..., Any], tmp_path: Path) -> Any:
    write_models(torch, tmp_path)
    server = corectl(f"--model-repository={tmp_path}")
    with tritonclient.http.InferenceServerClient(
        f"127.0.0.1:{server.ports['HTTPService']}", network_timeout=120
    ) as connection:
        yield connection


def test_each_kind_of_model_says_what_it_says_on_the_cpu(client: Any) -> None:
    x = np.random.default_rng(0).random((5, 4), np.float32)

    for name in ("source", "script", "program", "threads"):
        np.testing.assert_allclose(ask(client, name, x), np.repeat(x.sum(1, keepdims=True), 3, 1), 1e-5)


def test_running_out_of_memory_fails_the_request_only(client: Any) -> None:
    with pytest.raises(
        InferenceServerException, match=r"out of memory(.|\n)*The inputs of the call: x \[1,4\]"
    ):
        ask(client, "failing", np.full((1, 4), 1e7, np.float32))

    assert ask(client, "failing", np.ones((1, 4), np.float32)).tolist() == [[1, 1, 1, 1]]


def test_an_assertion_of_a_kernel_costs_a_worker_and_no_more(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="can use its GPU no more"):
        ask(client, "failing", np.full((1, 4), 99, np.float32))

    assert ask(client, "failing", np.ones((1, 4), np.float32)).tolist() == [[1, 1, 1, 1]]
    assert ask(client, "source", np.ones((1, 4), np.float32)).tolist() == [[4, 4, 4]]


def test_an_unloaded_model_gives_its_memory_back(
    torch: Any, corectl: Callable[..., Any], tmp_path: Path
) -> None:
    write_models(torch, tmp_path)
    server = corectl(f"--model-repository={tmp_path}", "--model-control-mode=explicit")
    free = []
    with tritonclient.http.InferenceServerClient(
        f"127.0.0.1:{server.ports['HTTPService']}", network_timeout=120
    ) as client:
        for _ in range(3):
            client.load_model("program")
            ask(client, "program", np.ones((1, 4), np.float32))
            client.unload_model("program")
            while client.get_model_repository_index() and any(
                entry.get("state") in ("READY", "UNLOADING") for entry in client.get_model_repository_index()
            ):
                pass
            free.append(torch.cuda.mem_get_info()[0])

    assert abs(free[-1] - free[0]) < 64 << 20
