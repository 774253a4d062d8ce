"""Ragged batches of an ONNX model through a server: requests of different lengths are one execution."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from onnx import parser
from tritonpy.scheduler.selection import DELAY_VARIABLE
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from ..servers import local_options

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
# Every element negated, and for each request the share of its elements in the batch.
RAGGED = """net (float[K] X, float[M] COUNTS) => (float[K] Y, float[M,1] SHARE) {
    Y = Neg(X)
    zero = Constant<value = int64[1] {0}>()
    one = Constant<value = int64[1] {1}>()
    total = ReduceSum(COUNTS, zero)
    share = Div(COUNTS, total)
    SHARE = Unsqueeze(share, one)
}"""
EQUAL = "net (float[N,K] X) => (float[N,K] Y) { Y = Neg(X) }"
LENGTHS = (3, 5, 1, 3)


def tensor(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": "TYPE_FP32", "dims": [-1], **more}


CONFIG: dict[str, Any] = {
    "max_batch_size": 8,
    "dynamic_batching": {},
    "input": [tensor("X")],
    "output": [tensor("Y")],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
}
RAGGED_CONFIG = {
    **CONFIG,
    "input": [tensor("X", allow_ragged_batch=True)],
    "output": [tensor("Y"), {"name": "SHARE", "data_type": "TYPE_FP32", "dims": [1]}],
    "batch_input": [
        {
            "kind": "BATCH_ELEMENT_COUNT",
            "target_name": ["COUNTS"],
            "data_type": "TYPE_FP32",
            "source_input": ["X"],
        }
    ],
    "batch_output": [{"target_name": ["Y"], "source_input": ["X"]}],
}
ISOLATED = {"parameters": {"TRITONPY_ISOLATION": {"string_value": "process"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Models that wait for four requests before they execute the first batch."""
    repository = ModelRepository(tmp_path_factory.mktemp("repository"))
    ragged = parser.parse_model(HEADER + RAGGED).SerializeToString()
    for protocol in ("http", "grpc"):
        repository.onnx(f"ragged_{protocol}", ragged, RAGGED_CONFIG)
        repository.onnx(f"ragged_worker_{protocol}", ragged, {**RAGGED_CONFIG, **ISOLATED})
        repository.onnx(f"equal_{protocol}", parser.parse_model(HEADER + EQUAL).SerializeToString(), CONFIG)
    options = local_options(repository.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DELAY_VARIABLE, str(len(LENGTHS)))
        with Server(options) as started:
            yield started


def call(server: Server, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    url = f"http://127.0.0.1:{server.http_port}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=DEADLINE_S) as answer:
        return json.load(answer)


Infer = Callable[[str, np.ndarray[Any, Any]], dict[str, Any]]


def over_http(server: Server) -> Infer:
    def send(model: str, x: np.ndarray[Any, Any]) -> dict[str, Any]:
        given = {"name": "X", "datatype": "FP32", "shape": x.shape, "data": x.tolist()}
        answer = call(server, f"/v2/models/{model}/infer", {"inputs": [given]})
        return {
            out["name"]: np.array(out["data"], np.float32).reshape(out["shape"]) for out in answer["outputs"]
        }

    return send


def over_grpc(client: tritonclient.grpc.InferenceServerClient) -> Infer:
    def send(model: str, x: np.ndarray[Any, Any]) -> dict[str, Any]:
        given = tritonclient.grpc.InferInput("X", x.shape, "FP32")
        given.set_data_from_numpy(x)
        answer = client.infer(model, [given])
        return {out.name: answer.as_numpy(out.name) for out in answer.get_response().outputs}

    return send


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def infer(protocol: str, server: Server) -> Iterator[Infer]:
    if protocol == "http":
        yield over_http(server)
    else:
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            yield over_grpc(client)


def executions(server: Server, model: str) -> dict[int, int]:
    """How many batches of each size there were."""
    [stats] = call(server, f"/v2/models/{model}/stats")["model_stats"]
    return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in stats["batch_stats"]}


def at_once(infer: Infer, model: str) -> list[tuple[np.ndarray[Any, Any], dict[str, Any]]]:
    """A request of each length, all in the queue before the first is executed; with what they answer."""
    arrays = [np.arange(1, length + 1, dtype=np.float32)[None] for length in LENGTHS]
    with ThreadPoolExecutor(len(arrays)) as pool:
        return list(zip(arrays, pool.map(lambda array: infer(model, array), arrays), strict=True))


@pytest.mark.parametrize("model", ["ragged", "ragged_worker"])
def test_requests_of_different_lengths_are_one_execution(
    model: str, protocol: str, server: Server, infer: Infer
) -> None:
    answers = at_once(infer, f"{model}_{protocol}")

    assert executions(server, f"{model}_{protocol}") == {4: 1}
    for array, outputs in answers:
        assert np.array_equal(outputs["Y"], -array)
        assert outputs["SHARE"] == pytest.approx(array.size / sum(LENGTHS))


def test_without_ragged_batches_only_equal_shapes_go_together(
    protocol: str, server: Server, infer: Infer
) -> None:
    answers = at_once(infer, f"equal_{protocol}")

    assert sum(size * count for size, count in executions(server, f"equal_{protocol}").items()) == 4
    assert 4 not in executions(server, f"equal_{protocol}")
    for array, outputs in answers:
        assert np.array_equal(outputs["Y"], -array)
