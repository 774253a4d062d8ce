"""Answers with what it sees of the request."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self._version = int(args["model_version"])

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        seen = {
            "version": self._version,
            "id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
            "requested": sorted(request.requested_output_names()),
            "inputs": [tensor.name() for tensor in request.inputs()],
        }
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("SEEN", np.array([json.dumps(seen)], object)),
                pb_utils.Tensor("OTHER", np.zeros(1, np.float32)),
            ]
        )
