"""Waits each of the given times and sends it, while other requests are served; a negative time raises."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*(self._serve(request) for request in requests))

    async def _serve(self, request):
        sender = request.get_response_sender()
        for seconds in request.inputs()[0].as_numpy():
            if seconds < 0:
                raise ValueError("time does not run backwards")
            await asyncio.sleep(float(seconds))
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("VALUE", seconds.reshape(1))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
