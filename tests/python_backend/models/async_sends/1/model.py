"""Waits each of the given times and sends it, while other requests are served; ends when it is cancelled.

A negative time raises, and one of more than a thousand seconds has another model add it to itself instead.
"""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*(self._serve(request) for request in requests))

    async def _serve(self, request):
        sender = request.get_response_sender()
        for seconds in request.inputs()[0].as_numpy():
            if seconds < 0:
                raise ValueError("time does not run backwards")
            if seconds > 1000:
                seconds = await self._doubled(seconds)
            else:
                await self._wait(float(seconds), sender)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("VALUE", seconds.reshape(1))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def _wait(self, seconds, sender):
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0 and not sender.is_cancelled():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(min(left, 0.02))

    async def _doubled(self, value):
        both = np.array([[value, value]], np.float32)
        request = pb_utils.InferenceRequest(
            model_name="add",
            requested_output_names=["SUM"],
            inputs=[pb_utils.Tensor(name, both) for name in "AB"],
        )
        [output] = (await request.async_exec()).output_tensors()
        return output.as_numpy()[0, 0]
