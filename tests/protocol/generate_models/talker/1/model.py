"""Does what it is told, one response after the other."""

import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def _words(*words):
    return pb_utils.Tensor("text", np.array([word.encode() for word in words], object))


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self._talk(request, request.get_response_sender())

    def _talk(self, request, sender):
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        steps = pb_utils.get_input_tensor_by_name(request, "say").as_numpy().tolist()
        for step in steps:
            word, _, more = step.decode().partition(":")
            if word == "error":
                code = getattr(pb_utils.TritonError, more or "INTERNAL")
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"bad {more}", code)))
            elif word == "raise":
                raise ValueError("boom")
            elif word == "two":
                number = pb_utils.Tensor("number", np.array([1.5, 2], np.float32))
                sender.send(pb_utils.InferenceResponse([_words("x", "y"), number]))
            elif word == "nothing":
                sender.send(pb_utils.InferenceResponse([]))
            elif word == "last":
                sender.send(pb_utils.InferenceResponse([_words("last")]), flags=final)
                return
            elif word == "last error":
                error = pb_utils.TritonError("bad end")
                sender.send(pb_utils.InferenceResponse(error=error), flags=final)
                return
            elif word == "until":  # goes on when the file is there
                while not os.path.exists(more):
                    time.sleep(0.01)
            elif word == "touch":
                with open(more, "w"):
                    pass
            elif word == "until cancelled":
                while not request.is_cancelled():
                    time.sleep(0.01)
                with open(more, "w"):
                    pass
            else:
                sender.send(pb_utils.InferenceResponse([_words(word)]))
        sender.send(flags=final)
