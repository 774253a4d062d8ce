"""Tells what arrived: inputs, parameters and id, as one JSON string."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def _plain(value):
    return value.decode() if isinstance(value, bytes) else value


class TritonPythonModel:
    def initialize(self, args):
        self.is_batched = json.loads(args["model_config"])["max_batch_size"] > 0

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        inputs = {}
        for tensor in request.inputs():
            array = tensor.as_numpy()
            inputs[tensor.name()] = [
                list(array.shape),
                [_plain(value) for value in array.reshape(-1).tolist()],
            ]
        seen = {
            "id": request.request_id(),
            "inputs": inputs,
            "parameters": json.loads(request.parameters()),
            "sequence": request.correlation_id(),
        }
        said = np.array([json.dumps(seen)], object).reshape((1, 1) if self.is_batched else (1,))
        return pb_utils.InferenceResponse([pb_utils.Tensor("seen", said)])
