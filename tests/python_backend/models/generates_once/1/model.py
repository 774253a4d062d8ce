"""Has itself executed as often as its input says, and then answers; -1 answers and reschedules at once."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self._steps = {}

    def execute(self, requests):
        return [self._step(request) for request in requests]

    def _step(self, request):
        sequence = request.correlation_id()
        step = self._steps[sequence] = self._steps.get(sequence, 0) + 1
        count = int(request.inputs()[0].as_numpy()[0])
        if step < count:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        if count < 0:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        else:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL)
        return pb_utils.InferenceResponse([pb_utils.Tensor("STEP", np.array([step], np.int32))])
