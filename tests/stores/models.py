"""Models that tests put into a store, and what is asked of a server about them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import numpy as np
from onnx import TensorProto, helper

CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
CODE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + NUMBER
        )]) for request in requests]
"""


def code(number: int) -> bytes:
    return CODE.replace("NUMBER", str(number)).encode()


def doubling() -> bytes:
    """An ONNX model with two floats that gives them twice as large."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "F"], ["Y"])],
        "doubling",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("F", TensorProto.FLOAT, [1], np.array([2], np.float32))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def ask(port: int, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/{path}", None if body is None else json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=90) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def infer(port: int, model: str, datatype: str, *data: float) -> list[float]:
    tensor = {"name": "X", "datatype": datatype, "shape": [len(data)], "data": data}
    return ask(port, f"models/{model}/infer", {"inputs": [tensor]})["outputs"][0]["data"]  # type: ignore[no-any-return]


def load(port: int, model: str) -> str:
    """Load a model; returns the error, or ""."""
    try:
        ask(port, f"repository/models/{model}/load", {})
    except urllib.error.HTTPError as exc:
        with exc:
            return str(json.loads(exc.read())["error"])
    return ""
