"""Reshape with Python models, on our server and on a real one: what models see, and what clients get."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

# Gives the input back in its parameter's shape, and says of which shape it was.
MODEL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.shape = json.loads(config["parameters"]["shape"]["string_value"])
        self.rows = int(config["max_batch_size"]) > 0

    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            lead = list(array.shape[:1]) if self.rows else []
            said = np.array([str(list(array.shape))] * (lead[0] if lead else 1), dtype=object)
            out = array if self.shape is None else array.reshape(lead + self.shape)
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("Y", out),
                pb_utils.Tensor("SAID", said.reshape(lead + [1])),
            ]))
        return responses
"""
Spec = tuple[int, list[int], list[int] | None, list[int], list[int] | None, list[int] | None]
# max_batch_size, dims and reshape of X, dims and reshape of Y, the shape in which the model answers
MODELS: dict[str, Spec] = {
    "both": (4, [4], [2, 2], [4], [2, 2], None),
    "scalar": (4, [1], [], [1], [], None),
    "wild": (4, [-1, 2, 2], [1, -1, 4], [-1, 2, 2], [1, -1, 4], None),
    "only_out": (4, [4], None, [2, 2], [4], None),
    "other_out": (4, [4], None, [2, 2], [4], [1, 4]),
    "unbatched": (0, [4], [2, 2], [2, 2], [4], [4]),
}
# model, the client's shape, the model's shape, the shape that comes back
ASKED = [
    ("both", [2, 4], [2, 2, 2], [2, 4]),
    ("scalar", [3, 1], [3], [3, 1]),
    ("wild", [1, 3, 2, 2], [1, 1, 3, 4], [1, 3, 2, 2]),
    ("only_out", [2, 4], [2, 4], [2, 2, 2]),
    ("other_out", [1, 4], [1, 4], [1, 2, 2]),
    ("unbatched", [4], [2, 2], [2, 2]),
]


def tensor(name: str, dims: list[int], shape: list[int] | None) -> dict[str, Any]:
    more = {} if shape is None else {"reshape": {"shape": shape}}
    return {"name": name, "data_type": "TYPE_FP32", "dims": dims, **more}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = ModelRepository(tmp_path_factory.mktemp("repository"))
    for name, (size, dims, shape, out_dims, out_shape, answer) in MODELS.items():
        config = {
            "backend": "python",
            "max_batch_size": size,
            "input": [tensor("X", dims, shape)],
            "output": [
                tensor("Y", out_dims, out_shape),
                {"name": "SAID", "data_type": "TYPE_STRING", "dims": [1]},
            ],
            "instance_group": [{"kind": "KIND_CPU", "count": 1}],
            "parameters": {"shape": {"string_value": json.dumps(answer)}},
            "model_warmup": [warmup(dims)],
            "response_cache": {"enable": True},
        }
        made.python(name, MODEL, config)
    return made.path


def warmup(dims: list[int]) -> dict[str, Any]:
    given = {"data_type": "TYPE_FP32", "dims": [max(1, dim) for dim in dims], "zero_data": True}
    return {"name": "w", "batch_size": 1, "inputs": {"X": given}}


@pytest.fixture(scope="module")
def ours(repository: Path) -> Iterator[int]:
    cache = (("local", "size", "1000000"),)
    options = local_options(repository, cache_config=cache)
    with Server(options) as server:
        yield server.http_port


def infer(port: int, model: str, shape: list[int]) -> tuple[str, list[int], list[float]]:
    """What the model says it got, the shape that comes back, and the elements."""
    given = {"name": "X", "datatype": "FP32", "shape": shape, "data": list(range(prod(shape)))}
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    body = json.dumps({"inputs": [given]}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=20) as answer:
            outputs = {output["name"]: output for output in json.load(answer)["outputs"]}
    except urllib.error.HTTPError as exc:
        raise AssertionError(exc.read().decode()) from exc
    return outputs["SAID"]["data"][0], outputs["Y"]["shape"], outputs["Y"]["data"]


def cache_hits(port: int, model: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{model}/stats", timeout=20) as answer:
        [statistics] = json.load(answer)["model_stats"]
    return int(statistics["inference_stats"]["cache_hit"]["count"])


@pytest.mark.parametrize(("model", "shape", "seen", "answered"), ASKED)
def test_a_model_sees_one_shape_and_its_client_another(
    model: str, shape: list[int], seen: list[int], answered: list[int], ours: int
) -> None:
    assert infer(ours, model, shape) == (str(seen), answered, list(range(prod(shape))))


@pytest.mark.parametrize(("model", "shape", "seen", "answered"), ASKED)
def test_an_answer_from_the_cache_is_not_reshaped_again(
    model: str, shape: list[int], seen: list[int], answered: list[int], ours: int
) -> None:
    hits = cache_hits(ours, model)
    first, second = infer(ours, model, shape), infer(ours, model, shape)

    assert cache_hits(ours, model) > hits
    assert first == second == (str(seen), answered, list(range(prod(shape))))


@pytest.mark.parity
@pytest.mark.timeout(120)
def test_the_real_server_does_the_same(repository: Path, real_triton: Callable[..., dict[str, int]]) -> None:
    ports = real_triton(repository)

    for model, shape, seen, answered in ASKED:
        assert infer(ports["http"], model, shape) == (str(seen), answered, list(range(prod(shape)))), model
