"""Answer with the sum of two calls of the identity model that are under way at the same time."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            first, second = await asyncio.gather(self.call_identity(values), self.call_identity(values))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", first + second)]))
        return responses

    async def call_identity(self, values):
        response = await pb_utils.InferenceRequest(
            model_name="identity_py",
            inputs=[pb_utils.Tensor("INPUT0", values)],
            requested_output_names=["OUTPUT0"],
        ).async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
