"""Answer each request of a sequence with the sum of all numbers that it has sent."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        values = [
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("CORRID", "START", "X")
        ]
        corrid, start, number = (value.item() for value in values)
        total = number if start else self.sums[corrid] + number
        self.sums[corrid] = total
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([[total]], np.int32))])
