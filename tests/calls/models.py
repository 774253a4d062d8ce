"""Small models that call each other, and a client for them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

CALLER = """
import os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

TARGETS = {targets!r}


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X")
        depth = int(x.as_numpy()[0])
        if depth <= 0 or not TARGETS:
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())])
        response = pb_utils.InferenceRequest(
            model_name=TARGETS[0],
            inputs=[pb_utils.Tensor("X", x.as_numpy() - 1)],
            requested_output_names=["Y"],
        ).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", response.output_tensors()[0].as_numpy())])
"""


CONFIG = """
backend: "python"
max_batch_size: 0
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }} ]
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
{more}
"""


def write_model(root: Path, name: str, code: str, *, count: int = 1, more: str = "") -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (root / name / "config.pbtxt").write_text(CONFIG.format(count=count, more=more))


def write_caller(root: Path, name: str, *targets: str, count: int = 1, more: str = "") -> None:
    write_model(root, name, CALLER.format(targets=list(targets)), count=count, more=more)


def infer(port: int, model: str, values: list[float]) -> list[float]:
    """The output of one request; raises with the server's error text."""
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    try:
        with urlopen(Request(url, json.dumps(body).encode()), timeout=30) as answer:
            outputs = json.load(answer)["outputs"]
    except HTTPError as error:
        with error:
            raise RuntimeError(json.load(error)["error"]) from None
    return outputs[0]["data"]
