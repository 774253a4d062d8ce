import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Tells what it was told beside its input, and sets parameters of the response when that is not 0."""

    def execute(self, requests):
        responses = []
        for request in requests:
            told = json.dumps(
                {
                    "parameters": json.loads(request.parameters()),
                    "id": request.request_id(),
                    "flags": request.flags(),
                    "correlation_id": request.correlation_id(),
                    "timeout": request.timeout(),
                    "requested": sorted(request.requested_output_names()),
                },
                sort_keys=True,
            )
            output = pb_utils.Tensor("TOLD", np.array([told.encode()], np.object_))
            if request.inputs()[0].as_numpy()[0]:
                said = {"text": "words", "count": -3, "truth": True}
                responses.append(pb_utils.InferenceResponse([output], parameters=said))
            else:
                responses.append(pb_utils.InferenceResponse([output]))
        return responses
