"""Calls of other models from a thread of a decoupled model, after its `execute` has returned."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def described(response):
    error = response.error()
    return {
        "error": None if error is None else error.message(),
        "outputs": {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()},
    }


def adding():
    return pb_utils.InferenceRequest(
        model_name="add",
        requested_output_names=["SUM"],
        inputs=[pb_utils.Tensor(name, np.array([[1, 2]], np.float32)) for name in "AB"],
    )


def call(request):
    return described(adding().exec())


def responses(request, *values):
    steps = json.dumps([*(["value", value] for value in values), ["final"]])
    asking = pb_utils.InferenceRequest(
        model_name="sends",
        requested_output_names=["VALUE"],
        inputs=[pb_utils.Tensor("STEPS", np.array([steps], object))],
    )
    return [described(response) for response in asking.exec(decoupled=True)]


def call_on_a_loop(request):
    """`async_exec` on an event loop of the thread's own."""

    async def answer():
        return described(await adding().async_exec())

    return asyncio.run(answer())
