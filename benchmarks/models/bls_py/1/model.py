"""Answer after two steps: the input goes through the identity model, and its answer goes through it again."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            for _ in range(2):
                values = self.call_identity(values)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values)]))
        return responses

    def call_identity(self, values):
        response = pb_utils.InferenceRequest(
            model_name="identity_py",
            inputs=[pb_utils.Tensor("INPUT0", values)],
            requested_output_names=["OUTPUT0"],
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
