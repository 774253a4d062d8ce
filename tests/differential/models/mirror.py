import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers every input under the matching output name: `IN…` comes back as `OUT…`."""

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(t.name().replace("IN", "OUT", 1), t.as_numpy()) for t in request.inputs()]
            )
            for request in requests
        ]
