"""Asks `echo` twice: with the trace of its request, and without. Says what the trace's context is."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            traced = pb_utils.InferenceRequest(
                model_name="echo",
                request_id="traced",
                requested_output_names=["OUTPUT0"],
                inputs=[given],
                trace=request.trace(),
            ).exec()
            pb_utils.InferenceRequest(
                model_name="echo", requested_output_names=["OUTPUT0"], inputs=[given]
            ).exec()
            context = np.array([str(request.trace().get_context()).encode()], np.object_)
            responses.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.get_output_tensor_by_name(traced, "OUTPUT0"),
                        pb_utils.Tensor("CONTEXT", context),
                    ]
                )
            )
        return responses
