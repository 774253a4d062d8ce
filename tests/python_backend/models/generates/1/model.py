"""Sends one response for each step that its input asks for, and has itself executed again in between."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self._steps = {}

    def execute(self, requests):
        for request in requests:
            sequence = request.correlation_id()
            step = self._steps.get(sequence, 0)
            count = int(request.inputs()[0].as_numpy()[0])
            seen = json.dumps([request.flags(), bool(sequence), len(requests), request.request_id()])
            response = pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("STEP", np.array([step], np.int32)),
                    pb_utils.Tensor("SEEN", np.array([seen], object)),
                ]
            )
            sender = request.get_response_sender()
            self._steps[sequence] = step + 1
            if step + 1 < count:
                sender.send(response)
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                sender.send(response, FINAL)
                del self._steps[sequence]
