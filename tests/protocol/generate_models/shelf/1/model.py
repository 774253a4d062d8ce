"""Has an answer of every kind."""

import numpy as np
import triton_python_backend_utils as pb_utils

ANSWERS = {
    "scalars": {
        "i8": np.array([-3], np.int8),
        "u8": np.array([250], np.uint8),
        "i64": np.array([-(2**62)], np.int64),
        "u64": np.array([2**64 - 1], np.uint64),
        "f32": np.array([0.1], np.float32),
        "f64": np.array([0.1], np.float64),
        "flag": np.array([True]),
        "text": np.array(['a "b"\n\u00e9'.encode()], object),
    },
    "arrays": {
        "i8": np.array([[1, 2], [3, 4]], np.int8),
        "f32": np.array([1, np.nan, np.inf], np.float32),
        "f64": np.array([], np.float64),
        "flag": np.array([True, False]),
        "text": np.array([b"a", b"b"], object),
    },
    "half": {"half": np.array([1.5], np.float16)},
    "raw": {"text": np.array([b"\xff\x00a"], object)},
    "nothing": {},
}


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        kind = pb_utils.get_input_tensor_by_name(request, "kind").as_numpy()[0].decode()
        if kind == "raise":
            raise ValueError("boom")
        if kind.startswith("error:"):
            code = getattr(pb_utils.TritonError, kind.removeprefix("error:"))
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"told to {kind}", code))
        if kind == "parameters":
            said = {"number": 7, "flag": True, "word": "x", "text": "hides the output", "model_name": "lost"}
            text = pb_utils.Tensor("text", np.array([b"hidden"], object))
            return pb_utils.InferenceResponse([text], parameters=said)
        return pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in ANSWERS[kind].items()])
