"""Answers the requests of a batch in turns, without looking whether anybody reads."""

import numpy as np
import triton_python_backend_utils as pb_utils


def _number(request, name):
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0, 0])


class TritonPythonModel:
    def execute(self, requests):
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        left = []
        for request in requests:
            text = b"x" * _number(request, "byte_size")
            left.append([request.get_response_sender(), _number(request, "count"), text])
        while left:
            for turn in list(left):
                sender, count, text = turn
                if count == 0:
                    sender.send(flags=final)
                    left.remove(turn)
                    continue
                tensor = pb_utils.Tensor("text", np.array([text], object).reshape(1, 1))
                sender.send(pb_utils.InferenceResponse([tensor]))
                turn[1] -= 1
