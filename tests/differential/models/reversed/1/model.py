import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Produces its outputs in the reverse order, and never one of them."""

    def execute(self, requests):
        responses = []
        for request in requests:
            names = [tensor.name() for tensor in request.inputs()]
            outputs = [
                pb_utils.Tensor(
                    name.replace("IN", "OUT"), pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                )
                for name in sorted(names, reverse=True)
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
