import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sends a response for each element: the element, or an error for a negative one."""

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for element in request.inputs()[0].as_numpy():
                if element < 0:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"got {element}")))
                else:
                    output = pb_utils.Tensor("OUT0", np.array([element], np.int32))
                    sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
