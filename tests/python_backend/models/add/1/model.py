import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        # By name: the real server gives the inputs in any order.
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB")
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFFERENCE", a - b)]
        )
