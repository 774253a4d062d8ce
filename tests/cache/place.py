"""A server with a response cache, ours or a real one, and what tests ask of it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from ..counting import at_rest

# Answers what it is given, and how often it has executed; -1 is answered with an error, -2 raises one.
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

FIRST = 0

class TritonPythonModel:
    def initialize(self, args):
        self.count = FIRST

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        self.count += 1
        first = x.flat[0] if x.size else 0
        if first == -2:
            raise ValueError("no minus two")
        if first == -1:
            return pb_utils.InferenceResponse([], pb_utils.TritonError("no minus one"))
        count = np.full((len(x), 1), self.count, np.int64)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x), pb_utils.Tensor("COUNT", count)])
"""
CONFIG: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [
        {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
        {"name": "COUNT", "data_type": "TYPE_INT64", "dims": [1]},
    ],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    "response_cache": {"enable": True},
}
ENSEMBLE: dict[str, Any] = {
    "platform": "ensemble",
    "max_batch_size": 4,
    "input": CONFIG["input"],
    "output": CONFIG["output"],
    "ensemble_scheduling": {
        "step": [
            {
                "model_name": "uncached",
                "model_version": -1,
                "input_map": {"X": "X"},
                "output_map": {"Y": "Y", "COUNT": "COUNT"},
            }
        ]
    },
    "response_cache": {"enable": True},
}
ROW = np.ones((1, 4), np.float32)

# What three equal requests are counted as.
ONE_MISS_AND_TWO_HITS = {
    "success": 3,
    "fail": 0,
    "queue": 3,
    "compute_input": 1,
    "compute_infer": 1,
    "compute_output": 1,
    "cache_hit": 2,
    "cache_miss": 1,
    "inference_count": 1,
    "execution_count": 1,
}

_numbers = count(1)


class Place:
    """A server with a cache, and a client for each protocol.

    Attributes:
        kind: `ours` or `real`.
    """

    def __init__(self, kind: str, models: ModelRepository, ports: tuple[int, int, int]) -> None:
        self.kind = kind
        self._models = models
        self._metrics = ports[2]
        self._http = ports[0]
        self.clients: dict[str, Any] = {  # Any: the two have much in common, and no type
            "http": httpclient.InferenceServerClient(f"127.0.0.1:{ports[0]}"),
            "grpc": grpcclient.InferenceServerClient(f"127.0.0.1:{ports[1]}"),
        }

    def ask(
        self, x: npt.NDArray[np.float32], protocol: str = "http", *, model: str = "counting", **wishes: Any
    ) -> dict[str, list[Any]]:
        """The outputs of a request."""
        module = {"http": httpclient, "grpc": grpcclient}[protocol]
        tensor = module.InferInput("X", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        if "outputs" in wishes:
            wishes["outputs"] = [module.InferRequestedOutput(name) for name in wishes["outputs"]]
        result = self.clients[protocol].infer(model, [tensor], **wishes)
        answer = {name: result.as_numpy(name) for name in ("Y", "COUNT")}
        return {name: array.tolist() for name, array in answer.items() if array is not None}

    def executed(self, *requests: Callable[[], object], model: str = "counting") -> int:
        """How many of these requests were executed."""
        before = self.counts(model)["execution_count"]
        for request in requests:
            request()
        return self.counts(model)["execution_count"] - before

    def statistics(self, model: str = "counting") -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._http}/v2/models/{model}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            found: dict[str, Any] = json.load(answer)["model_stats"][0]
        return found

    def counts(self, model: str = "counting") -> dict[str, int]:
        """What the statistics count, without times."""

        def counted() -> dict[str, int]:
            found = self.statistics(model)
            phases = {name: phase["count"] for name, phase in found["inference_stats"].items()}
            return phases | {name: found[name] for name in ("inference_count", "execution_count")}

        return counted() if self.kind == "ours" else at_rest(counted)

    def metrics(self) -> dict[str, float]:
        """The lines of the metrics page that speak of a cache."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        return {
            name: float(value) for name, value in re.findall(r"^(nv_cache\S+) (\S+)$", text, re.MULTILINE)
        }

    def rewrite(self, first: int, model: str = "counting") -> None:
        """Change the model's source and load it anew."""
        self._models.python(model, MODEL.replace("FIRST = 0", f"FIRST = {first}"))
        self.clients["http"].load_model(model)

    def new(self, *shape: int) -> npt.NDArray[np.float32]:
        """Numbers that no request had before."""
        return np.full(shape, next(_numbers), np.float32)
