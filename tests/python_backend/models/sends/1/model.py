"""Takes the steps that a request names with its response sender, at once or on a thread."""

import threading

import triton_python_backend_utils as pb_utils
from steps import Steps, value


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            steps = Steps(request)
            [first, *rest] = steps.steps or [[None]]
            if first[0] == "raise":
                raise ValueError("boom")
            if first[0] == "return":
                steps.final()
                return [pb_utils.InferenceResponse([value(1)])]
            if first[0] == "later":
                steps.steps = rest
                threading.Thread(target=steps.run).start()
            else:
                steps.run()
