"""The models that clients are tried on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, np_to_triton_dtype, serialize_byte_tensor
from tritonpy_sdk.repository import ModelRepository

ECHO = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        outputs = [
            pb_utils.Tensor(tensor.name()[:-2] + "OUT", tensor.as_numpy())
            for tensor in request.inputs()
        ]
        seen = {
            "id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
        }
        rows = len(request.inputs()[0].as_numpy())
        outputs.append(pb_utils.Tensor("SEEN", np.array([[json.dumps(seen)]] * rows, object)))
        return pb_utils.InferenceResponse(outputs, parameters={"rows": rows, "by": "echo", "whole": True})
"""
ECHO_CONFIG = """
backend: "python"
max_batch_size: 8
input [
  { name: "NUMBERS_IN" data_type: TYPE_FP32 dims: [ -1 ] optional: true },
  { name: "TEXTS_IN" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "INTEGERS_IN" data_type: TYPE_INT64 dims: [ 2 ] optional: true }
]
output [
  { name: "NUMBERS_OUT" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "TEXTS_OUT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "INTEGERS_OUT" data_type: TYPE_INT64 dims: [ 2 ] },
  { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] }
]
dynamic_batching { }
"""

IDENTITY_CONFIG = """
backend: "identity"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" } ]
"""

TEXT_CONFIG = """
backend: "identity"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] } ]
dynamic_batching { }
"""

COUNTS = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = int(request.inputs()[0].as_numpy()[0])
            if count < 0:
                error = pb_utils.TritonError("counts up only", pb_utils.TritonError.INVALID_ARG)
                sender.send(pb_utils.InferenceResponse(error=error))
            for number in range(count):
                if request.is_cancelled():
                    print(f"stopped counting to {count} at {number}")
                    break
                tensor = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
                time.sleep(0.002 if count > 100 else 0)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNTS_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""

SLOW = """
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        [request] = requests
        seconds = request.inputs()[0].as_numpy()
        print(f"began request {request.request_id()}")
        end = time.monotonic() + float(seconds[0])
        while time.monotonic() < end and not request.is_cancelled():
            time.sleep(0.005)
        if request.is_cancelled():
            print(f"nobody waits for request {request.request_id()}")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SLEPT", seconds)])]
"""
SLOW_CONFIG = """
backend: "python"
input [ { name: "SECONDS" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "SLEPT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""

FAILS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def answer(self, code):
        if code == "raise":
            raise ValueError("boom")
        error = pb_utils.TritonError(f"so {code}", getattr(pb_utils.TritonError, code))
        return pb_utils.InferenceResponse(error=error)
"""
FAILS_CONFIG = """
backend: "python"
input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""

SEEN = "SEEN"
"""The output of `echo` that tells what the model has seen of a request."""

LABELS = ("cat", "dog", "bird", "fish")


def write_models(folder: Path) -> None:
    """Write all of them."""
    repository = ModelRepository(folder)
    repository.python("echo", ECHO, ECHO_CONFIG)
    repository.python("counts", COUNTS, COUNTS_CONFIG)
    repository.python("slow", SLOW, SLOW_CONFIG)
    repository.python("fails", FAILS, FAILS_CONFIG)
    for name, config in (("scores", IDENTITY_CONFIG), ("texts", TEXT_CONFIG), ("spare", IDENTITY_CONFIG)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (folder / name / "labels.txt").write_text("\n".join(LABELS))


def infer_message(model: str, *, id: str = "", **tensors: np.ndarray) -> Any:
    """A request as clients without tritonclient write it."""
    message = service_pb2.ModelInferRequest(model_name=model, id=id)
    for name, array in tensors.items():
        message.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        is_text = array.dtype == object
        message.raw_input_contents.append(serialize_byte_tensor(array).item() if is_text else array.tobytes())
    return message


def seen_by_model(raw: bytes) -> dict[str, Any]:
    """The bytes of the output `SEEN`, read."""
    seen: dict[str, Any] = json.loads(deserialize_bytes_tensor(raw)[0])
    return seen
