"""Shape tensors through a server; a backend stands in for TensorRT's, the only one that may have them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import BatchPlan, BlockPool, InferRequest, InferResponse, Model, ModelInstance, hookimpl
from tritonpy.scheduler.selection import DELAY_VARIABLE
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

CONFIG: dict[str, Any] = {
    "backend": "tensorrt",
    "platform": "tensorrt_plan",
    "max_batch_size": 8,
    "dynamic_batching": {},
    "input": [
        {"name": "X", "data_type": "TYPE_FP32", "dims": [4]},
        {"name": "SHAPE", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True},
    ],
    "output": [
        {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1, -1]},
        {"name": "SAME", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True},
    ],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
}


class Engine:
    """Gives the rows of X the shape that SHAPE says."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[int], list[int]]] = []

    @hookimpl
    def model_initialize(self, model: Model) -> None:
        model.state = BatchPlan(model.config, BlockPool())

    @hookimpl
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse]:
        def run(feeds: dict[str, Any], names: list[str]) -> list[Any]:
            self.batches.append((list(feeds["X"].shape), feeds["SHAPE"].tolist()))
            outputs = {"Y": feeds["X"].reshape(-1, *feeds["SHAPE"]), "SAME": feeds["SHAPE"]}
            return [outputs[name] for name in names]

        return instance.model.state.execute(requests, run)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def port(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    repository = ModelRepository(tmp_path_factory.mktemp("repository"))
    repository.model("shaped", CONFIG, {"model.plan": b""})
    monkeypatch.setenv(DELAY_VARIABLE, "2")
    options = local_options(repository.path)
    with Server(options, plugins={"backends": {"tensorrt": engine}}) as server:
        yield server.http_port


def infer(port: int, rows: int, shape: Sequence[int], shape_of_shape: Sequence[int] = (2,)) -> dict[str, Any]:
    inputs = [
        {"name": "X", "datatype": "FP32", "shape": [rows, 4], "data": list(range(rows * 4))},
        {"name": "SHAPE", "datatype": "INT32", "shape": list(shape_of_shape), "data": list(shape)},
    ]
    url = f"http://127.0.0.1:{port}/v2/models/shaped/infer"
    body = json.dumps({"inputs": inputs}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=20) as answer:
            outputs = json.load(answer)["outputs"]
    except urllib.error.HTTPError as exc:
        return {"error": json.load(exc)["error"]}
    return {out["name"]: np.array(out["data"]).reshape(out["shape"]).tolist() for out in outputs}


@pytest.mark.parametrize(
    ("shapes", "batches"),
    [
        (((2, 2), (2, 2)), [([3, 4], [2, 2])]),
        (((2, 2), (4, 1)), [([1, 4], [2, 2]), ([2, 4], [4, 1])]),
    ],
)
def test_only_requests_with_equal_shape_tensors_are_one_batch(
    shapes: list[tuple[int, int]], batches: list[tuple[list[int], list[int]]], port: int, engine: Engine
) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda rows: infer(port, rows, shapes[rows - 1]), (1, 2)))

    assert sorted(engine.batches) == batches
    for rows, shape, answer in zip((1, 2), shapes, answers, strict=True):
        assert answer["SAME"] == list(shape)
        assert answer["Y"] == np.arange(rows * 4).reshape(rows, *shape).tolist()


def test_a_shape_tensor_has_no_rows(port: int) -> None:
    answer = infer(port, 2, (2, 2, 2, 2), (2, 2))

    assert "unexpected shape for input 'SHAPE' for model 'shaped'. Expected [2], got [2,2]" in answer["error"]
