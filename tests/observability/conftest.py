"""Models of every kind whose requests are counted, for our server and a real one."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

# Answers what it is asked; -1 ends the batch, -2 only its own request.
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            numbers = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if numbers[0][0] == -1:
                raise ValueError("no")
            if numbers[0][0] == -2:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("not this one")))
            else:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numbers)]))
        return responses
"""
STREAM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            numbers = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for _ in range(2):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numbers)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 8,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
}
STEP = {"model_name": "plain", "model_version": -1, "input_map": {"IN": "IN"}, "output_map": {"OUT": "OUT"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {
        **TENSORS,
        "dynamic_batching": {},
        "metric_tags": {"team": 'vis"ion', "line": "a\\b"},
    },
    "cached": {**TENSORS, "response_cache": {"enable": True}},
    "stream": {**TENSORS, "model_transaction_policy": {"decoupled": True}},
}
ENSEMBLE = {
    "platform": "ensemble",
    "max_batch_size": 8,
    "input": TENSORS["input"],
    "output": TENSORS["output"],
    "ensemble_scheduling": {"step": [STEP]},
}


class Counted:
    """A server whose counters are looked at."""

    def __init__(self, http_port: int, metrics_port: int) -> None:
        self._http_port = http_port
        self._metrics_port = metrics_port

    def infer(self, model: str, *numbers: float, call: str = "infer") -> int:
        """Ask with one row for each number; the status."""
        tensor = {"name": "IN", "datatype": "FP32", "shape": [len(numbers), 1], "data": [*numbers]}
        document: dict[str, Any] = {"inputs": [tensor]}
        if call != "infer":
            document = {"IN": numbers[0]}
        with closing(http.client.HTTPConnection("127.0.0.1", self._http_port, timeout=30)) as connection:
            connection.request("POST", f"/v2/models/{model}/{call}", json.dumps(document))
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def ask_all(self) -> None:
        """What makes every family count."""
        for _ in range(3):
            assert self.infer("plain", 1, 2) == 200
            assert self.infer("cached", 1, 2) == 200
        assert self.infer("chain", 1) == 200
        assert self.infer("plain", -1) == 500
        assert self.infer("plain", -2) == 500
        assert self.infer("stream", 1, call="generate_stream") == 200

    def page(self) -> str:
        """The metrics page."""
        with urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30) as answer:
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            return answer.read().decode()  # type: ignore[no-any-return]

    def json(self, path: str) -> Any:
        """What a GET of the protocol answers."""
        with urlopen(f"http://127.0.0.1:{self._http_port}/v2/{path}", timeout=30) as answer:
            return json.load(answer)


@pytest.fixture(scope="module", autouse=True)
def _no_metrics_of_libraries() -> Iterator[None]:
    """What shared objects of other tests have left in this process is on no page here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritonpy.process_metrics._sources", [])
        yield


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models above, and the ensemble `chain` of one of them."""
    models = ModelRepository(tmp_path_factory.mktemp("counted"))
    for name, config in CONFIGS.items():
        models.python(name, STREAM if name == "stream" else MODEL, config)
    models.model("chain", ENSEMBLE)
    return models.path


ALL_METRICS = ("summary_latencies=true", "histogram_latencies=true")


@pytest.fixture(scope="module")
def ours(repository: Path) -> Iterator[Counted]:
    """Our server with every metric that it has."""
    options = local_options(
        repository,
        allow_grpc=False,
        metrics_config=ALL_METRICS,
        metrics_interval_ms=20,
        cache_config=(("local", "size", "1000000"),),
    )
    with Server(options) as server:
        yield Counted(server.http_port, server.metrics_port)
