"""Models whose answers are not what their configurations say: told once, or an error for who debugs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

CONTRADICTION = "output 'Y' is FP32 [2,1] for 1 row(s), but the configuration says FP32 [-1,1]"
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        doubled = [np.concatenate(2 * [each.inputs()[0].as_numpy()]) for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", rows)]) for rows in doubled]
"""
CONFIG = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
    "parameters": {"TRITONPY_ISOLATION": {"string_value": "thread"}},
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    ModelRepository(tmp_path).python("doubling", MODEL, CONFIG)
    return tmp_path


def ask(server: Server) -> Any:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [3]}]}
    url = f"http://127.0.0.1:{server.http_port}/v2/models/doubling/infer"
    with urlopen(Request(url, json.dumps(body).encode()), timeout=30) as answer:
        return json.load(answer)


def test_a_contradicting_output_reaches_the_client_and_is_logged_once(
    serve: Callable[..., Server], repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(repository)

    answers = [ask(server)["outputs"][0]["data"] for _ in range(3)]

    assert answers == 3 * [[3, 3]]
    warnings = [record.getMessage() for record in caplog.records if CONTRADICTION in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("model 'doubling' version 1: ")


def test_who_debugs_the_model_gets_an_error(serve: Callable[..., Server], repository: Path) -> None:
    server = serve(repository, debugged_models=("doubling",))

    with pytest.raises(HTTPError) as refused:
        ask(server)

    with refused.value as answer:
        assert answer.code == 500
        assert json.load(answer) == {"error": f"model 'doubling' version 1: {CONTRADICTION}"}
