"""Runs the function that a request names on a thread of its own, and sends its result as the one response."""

import importlib
import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self._run, args=(request,)).start()

    def _run(self, request):
        sender = request.get_response_sender()
        try:
            case, *args = json.loads(pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0])
            module, _, function = case.partition(".")
            result = getattr(importlib.import_module(module), function)(request, *args)
            response = pb_utils.InferenceResponse(
                [pb_utils.Tensor("RESULT", np.array([json.dumps(result).encode()], object))]
            )
        except Exception as exc:
            response = pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(exc).__name__}: {exc}"))
        sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
