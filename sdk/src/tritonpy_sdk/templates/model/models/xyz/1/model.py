"""The model xyz: lengths of vectors. Triton serves it as it is."""

from __future__ import annotations

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of the model; each has a process of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load what the model needs, once; what is raised here is the reason that it does not load."""
        text = json.loads(args["model_config"])["parameters"]["SCALE"]["string_value"]
        try:
            self.scale = float(text)
        except ValueError:
            raise pb_utils.TritonModelException(f"parameter SCALE: got '{text}', expected a number") from None

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Answer the requests of a batch, in their order."""
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        """A returned error is that request's only; a raised one is everybody's in the batch."""
        tensor = pb_utils.get_input_tensor_by_name(request, "X")
        assert tensor is not None  # the server has seen to it
        x = tensor.as_numpy()  # [rows, any]; not to be written to
        if not np.isfinite(x).all():
            error = pb_utils.TritonError("X has to be finite", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        length = self.scale * np.linalg.norm(x, axis=1, keepdims=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor("LENGTH", length.astype(np.float32))])
