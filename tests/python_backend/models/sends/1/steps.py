"""Does with its response sender what the request says, and writes into the log what was refused."""

import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def value(number):
    return pb_utils.Tensor("VALUE", np.array([number], np.float32))


class Steps:
    """What can be done with the sender of one request."""

    def __init__(self, request):
        self._request = request
        self._sender = request.get_response_sender()
        self.steps = json.loads(pb_utils.get_input_tensor_by_name(request, "STEPS").as_numpy()[0])
        self._id = request.request_id()

    def run(self):
        outcomes = []
        for step, *args in self.steps:
            try:
                outcomes.append(getattr(self, step)(*args))
            except Exception as exc:
                outcomes.append([type(exc).__name__, str(exc)])
        pb_utils.Logger.log_info(f"sent {self._id} {json.dumps(outcomes)} end")

    def value(self, number):
        self._sender.send(pb_utils.InferenceResponse([value(number)]))

    def last_value(self, number):
        self._sender.send(pb_utils.InferenceResponse([value(number)]), flags=FINAL)

    def last_value_with_parameters(self, parameters):
        self._sender.send(pb_utils.InferenceResponse([value(1)], parameters=parameters), flags=FINAL)

    def both(self, number):
        other = pb_utils.Tensor("OTHER", np.array([-number], np.float32))
        self._sender.send(pb_utils.InferenceResponse([value(number), other]))

    def empty(self):
        self._sender.send(pb_utils.InferenceResponse([]))

    def unknown(self):
        tensor = pb_utils.Tensor("UNKNOWN", np.zeros(1, np.float32))
        self._sender.send(pb_utils.InferenceResponse([tensor]))

    def error(self, text, code="INTERNAL"):
        error = pb_utils.TritonError(text, getattr(pb_utils.TritonError, code))
        self._sender.send(pb_utils.InferenceResponse(error=error))

    def last_error(self, text, code="INTERNAL"):
        error = pb_utils.TritonError(text, getattr(pb_utils.TritonError, code))
        self._sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)

    def final(self):
        self._sender.send(flags=FINAL)

    def nothing(self):
        self._sender.send()

    def flags(self, number):
        self._sender.send(pb_utils.InferenceResponse([value(1)]), flags=number)

    def a_string(self):
        self._sender.send("text")

    def pause(self, seconds):
        time.sleep(seconds)

    def until(self, path):
        """Wait until there is a file, twenty seconds at most."""
        give_up = time.monotonic() + 20
        while not os.path.exists(path) and time.monotonic() < give_up:
            time.sleep(0.01)

    def come(self, folder):
        with open(os.path.join(folder, self._id), "w"):
            pass

    def meet(self, folder, count):
        """Come to a folder, and wait until so many requests are there; the last value is how many were."""
        self.come(folder)
        give_up = time.monotonic() + 20
        while len(os.listdir(folder)) < count and time.monotonic() < give_up:
            time.sleep(0.01)
        self.last_value(len(os.listdir(folder)))

    def ticks(self):
        """Send until told to stop; two thousand at most."""
        for tick in range(2000):
            if self._sender.is_cancelled():
                return f"stopped after {tick} ticks"
            self.value(tick)
            time.sleep(0.01)
        return "never stopped"

    def wait(self):
        """Wait until the client goes, twenty seconds at most."""
        pb_utils.Logger.log_info(f"waits with {self._id}")
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            if self._request.is_cancelled():
                return "the client is gone"
            time.sleep(0.01)
        return "the client stayed"

    def is_cancelled(self):
        return [self._request.is_cancelled(), self._sender.is_cancelled()]
