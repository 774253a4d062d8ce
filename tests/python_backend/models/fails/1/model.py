"""Fails as its input says; an input `fine` is answered."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        hows = [request.inputs()[0].as_numpy()[0, 0].decode() for request in requests]
        [how] = set(hows) - {"fine"} or {"fine"}
        return getattr(self, how)(requests) if hasattr(self, how) else [self._one(each) for each in hows]

    def _one(self, how):
        if how == "fine":
            return fine()
        error = pb_utils.TritonError(f"{how}!", getattr(pb_utils.TritonError, how))
        return pb_utils.InferenceResponse(error=error)

    def by_sender(self, requests):
        """Answers who asks for it by sender, and the others by the list."""
        responses = []
        for request in requests:
            if request.inputs()[0].as_numpy()[0, 0] == b"by_sender":
                flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                request.get_response_sender().send(fine(5), flags)
                responses.append(None)
            else:
                responses.append(fine())
        return responses

    def sends_and_raises(self, requests):
        """Answers one request, and then fails."""
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        for request in requests:
            if request.inputs()[0].as_numpy()[0, 0] == b"sends_and_raises":
                request.get_response_sender().send(fine(5), flags)
        raise ValueError("boom")

    def value_error(self, requests):
        raise ValueError("boom")

    def model_exception(self, requests):
        raise pb_utils.TritonModelException("no such luck")

    def no_text(self, requests):
        raise RuntimeError

    def two_lines(self, requests):
        raise RuntimeError("first\nsecond")

    def nothing(self, requests):
        return []

    def too_many(self, requests):
        return [fine() for _ in requests] + [fine()]

    def a_string(self, requests):
        return ["nonsense" for _ in requests]

    def a_tuple(self, requests):
        return tuple(fine() for _ in requests)

    def a_dict(self, requests):
        return {"OUT": 1}

    def default_code(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no code")) for _ in requests]

    def error_and_output(self, requests):
        outputs = fine().output_tensors()
        error = pb_utils.TritonError("has both")
        return [pb_utils.InferenceResponse(outputs, error) for _ in requests]

    def no_output(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]

    def unknown_output(self, requests):
        unknown = pb_utils.Tensor("UNKNOWN", np.zeros(1, np.float32))
        return [pb_utils.InferenceResponse([*fine().output_tensors(), unknown]) for _ in requests]

    def other_shape(self, requests):
        output = pb_utils.Tensor("OUT", np.zeros((len(requests), 3), np.float32))
        return [pb_utils.InferenceResponse([output]) for _ in requests]

    def other_datatype(self, requests):
        output = pb_utils.Tensor("OUT", np.zeros((len(requests), 1), np.int64))
        return [pb_utils.InferenceResponse([output]) for _ in requests]

    def same_output_twice(self, requests):
        return [
            pb_utils.InferenceResponse([*fine().output_tensors(), *fine(2).output_tensors()])
            for _ in requests
        ]


def fine(value=1):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full((1, 1), value, np.float32))])
