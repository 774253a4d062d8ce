"""The load of a language model as a header of its answers, from the metrics that its backend keeps.

The real server that other tests ask is too old to have it.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tritonpy.server import Server

from ..servers import local_options

CONFIG = (
    'backend: "python"\ninput [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
    'output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
)
CODE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily(
            name="nv_trt_llm_kv_cache_block_metrics", description="blocks", kind=pb_utils.MetricFamily.GAUGE
        )
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.metrics = []
        for kind, value in (("max", 100), ("used", 25), ("free", 75), ("tokens_per", 64)):
            metric = family.Metric(labels={"kv_cache_block_type": kind, **labels})
            metric.set(value)
            self.metrics.append(metric)
        self.family = family

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("text_output", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    (root / "llm" / "1").mkdir(parents=True)
    (root / "llm" / "1" / "model.py").write_text(CODE)
    (root / "llm" / "config.pbtxt").write_text(CONFIG)
    return root


@pytest.fixture(scope="module")
def our_port(models: Path) -> Iterator[int]:
    options = local_options(models, allow_grpc=False, allow_metrics=False)
    with Server(options) as server:
        yield server.http_port


def load_of(port: int, path: str, body: object, wanted: str | None) -> str | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        headers = {} if wanted is None else {"Endpoint-Load-Metrics-Format": wanted}
        connection.request("POST", f"/v2/models/llm/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        response.read()

        assert response.status == 200
        return response.headers.get("endpoint-load-metrics")


GENERATE = {"text_input": "hi"}
INFER = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]}]}
EXPECTED = [
    (
        "generate",
        GENERATE,
        "json",
        'JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}}',
    ),
    (
        "generate_stream",
        GENERATE,
        "text",
        "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=6400",
    ),
    ("generate", GENERATE, "xml", None),
    ("generate", GENERATE, None, None),
    ("infer", INFER, "json", None),
]


@pytest.mark.parametrize(("path", "body", "wanted", "said"), EXPECTED, ids=str)
def test_generate_reports_the_load_to_those_who_ask(
    our_port: int, path: str, body: object, wanted: str | None, said: str | None
) -> None:
    assert load_of(our_port, path, body, wanted) == said
