"""Awaits the function that a request names, `<file>.<function>`, and answers with its result."""

import importlib
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self._answer(request) for request in requests]

    async def _answer(self, request):
        case, *args = json.loads(pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0])
        module, _, function = case.partition(".")
        result = await getattr(importlib.import_module(module), function)(request, *args)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("RESULT", np.array([json.dumps(result).encode()], object))]
        )
