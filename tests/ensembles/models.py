"""Small Python models, and ensembles made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any

from tritonpy_sdk.repository import ModelRepository

Maps = Mapping[str, str]

# Adds a number; writes down what it is told, if there is a file for it.
ADD = """
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.number = int(parameters["number"]["string_value"])
        self.journal = parameters["journal"]["string_value"]
        self.name = args["model_name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if self.journal:
                said = [self.name, request.request_id(), request.correlation_id(), request.flags(),
                        json.loads(request.parameters()), request.timeout(), list(x.shape)]
                with open(self.journal, "a") as file:
                    file.write(json.dumps(said) + "\\n")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + self.number)]))
        return responses
"""

# Adds two tensors, of which the second may be left out.
SUM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            total = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            other = pb_utils.get_input_tensor_by_name(request, "B")
            if other is not None:
                total = total + other.as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", total)]))
        return responses
"""

RAISE = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("boom")
"""

# Sends 0, 1, … as many as it is asked for.
COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().item()):
                tensor = pb_utils.Tensor("Y", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# Answers even numbers only.
EVEN = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            sender = request.get_response_sender()
            if x.item() % 2 == 0:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 100)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

SILENT = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def tensor(
    name: str, dims: Sequence[int] = (1,), data_type: str = "TYPE_INT32", **more: Any
) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": list(dims), **more}


def write_model(
    models: ModelRepository,
    name: str,
    code: str = ADD,
    *,
    number: int = 1,
    journal: str = "",
    inputs: Sequence[dict[str, Any]] | None = None,
    outputs: Sequence[dict[str, Any]] | None = None,
    max_batch_size: int = 0,
    decoupled: bool = False,
    **more: Any,
) -> None:
    """A Python model of one instance that takes X and gives Y, unless something else is said."""
    models.python(
        name,
        dedent(code),
        {
            "backend": "python",
            "max_batch_size": max_batch_size,
            "input": [*(inputs or [tensor("X")])],
            "output": [*(outputs or [tensor("Y")])],
            "instance_group": [{"kind": "KIND_CPU", "count": 1}],
            "parameters": {"number": {"string_value": str(number)}, "journal": {"string_value": journal}},
            "model_transaction_policy": {"decoupled": decoupled},
            **more,
        },
    )


def step(model: str, read: Maps, written: Maps, version: int = -1) -> dict[str, Any]:
    return {
        "model_name": model,
        "model_version": version,
        "input_map": dict(read),
        "output_map": dict(written),
    }


def write_ensemble(
    models: ModelRepository,
    name: str,
    steps: Sequence[dict[str, Any]],
    *,
    inputs: Sequence[dict[str, Any]] | None = None,
    outputs: Sequence[dict[str, Any]] | None = None,
    max_batch_size: int = 0,
    max_inflight_requests: int = 0,
    **more: Any,
) -> None:
    """An ensemble that takes IN and gives OUT, unless something else is said."""
    scheduling: dict[str, Any] = {"step": list(steps)}
    if max_inflight_requests:
        scheduling["max_inflight_requests"] = max_inflight_requests
    models.model(
        name,
        {
            "platform": "ensemble",
            "max_batch_size": max_batch_size,
            "input": [*(inputs or [tensor("IN")])],
            "output": [*(outputs or [tensor("OUT")])],
            "ensemble_scheduling": scheduling,
            **more,
        },
    )
