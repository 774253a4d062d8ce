"""Models that other models call are cached like those that clients ask."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository

COUNTING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += 1
        xs = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + self.count)]) for x in xs]
"""
CALLING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            for _ in range(3):
                call = pb_utils.InferenceRequest(
                    model_name="counting", requested_output_names=["Y"], inputs=[x]
                )
                answer = call.exec()
                if answer.has_error():
                    raise answer.error()
            y = pb_utils.get_output_tensor_by_name(answer, "Y")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.as_numpy() * 2)]))
        return responses
"""
CONFIG: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.mark.parametrize("count", [4, 300_000])  # the latter lie in shared memory on their way
def test_calls_of_a_cached_model_are_answered_from_the_cache(
    serve: Callable[..., Any], tmp_path: Path, count: int
) -> None:
    models = ModelRepository(tmp_path / "models")
    models.python("counting", COUNTING, CONFIG | {"response_cache": {"enable": True}})
    models.python("calling", CALLING, CONFIG)
    server = serve(models.path, cache_config=(("local", "size", "100000000"),))
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    x = np.arange(count, dtype=np.float32)
    tensor = httpclient.InferInput("X", [count], "FP32")
    tensor.set_data_from_numpy(x)

    answers = [client.infer("calling", [tensor]).as_numpy("Y") for _ in range(2)]
    client.close()

    for answer in answers:
        np.testing.assert_array_equal(answer, (x + 1) * 2)
    with urllib.request.urlopen(
        f"http://127.0.0.1:{server.http_port}/v2/models/counting/stats", timeout=20
    ) as page:
        stats = json.load(page)["model_stats"][0]
    assert stats["execution_count"] == 1
    assert stats["inference_stats"]["cache_hit"]["count"] == 5
