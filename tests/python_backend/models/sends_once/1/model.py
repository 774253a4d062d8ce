"""Takes steps with the response senders of its requests, though it is not decoupled; or returns responses."""

import threading

import triton_python_backend_utils as pb_utils
from steps import Steps, value


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            steps = Steps(request)
            [first, *rest] = steps.steps or [[None]]
            if first[0] == "return":
                responses.append(pb_utils.InferenceResponse([value(first[1])]))
            elif first[0] == "reschedule":
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                responses.append(None)
            elif first[0] == "send_and_return":
                steps.value(first[1])
                responses.append(pb_utils.InferenceResponse([value(first[2])]))
            elif first[0] == "later":
                steps.steps = rest
                threading.Thread(target=steps.run).start()
                responses.append(None)
            elif first[0] == "return_none":
                steps.steps = rest
                steps.run()
                return None
            else:
                steps.run()
                responses.append(None)
        return responses
