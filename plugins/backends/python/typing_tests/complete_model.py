"""A model that uses all of `pb_utils`, annotated as its author would: nothing in here is an error."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: pb_utils.ModelConfig) -> pb_utils.ModelConfig:
        config.set_max_batch_size(8)
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1], "optional": True})
        config.add_output({"name": "SCORE", "data_type": "TYPE_FP32", "dims": [2]})
        config.set_dynamic_batching()
        config.set_model_transaction_policy({"decoupled": False})
        return config

    def initialize(self, args: dict[str, str]) -> None:
        self.logger = pb_utils.Logger
        self.config: dict[str, Any] = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(self.config, "SCORE")
        if output is None:
            raise pb_utils.TritonModelException("the configuration has no output SCORE")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        self.is_decoupled: bool = pb_utils.using_decoupled_model_transaction_policy(self.config)
        family = pb_utils.MetricFamily("texts_total", "Texts scored.", pb_utils.MetricFamily.COUNTER)
        self.texts = family.Metric(labels={"model": args["model_name"]})
        self.logger.log_info(f"{args['model_name']} in {pb_utils.get_model_dir()}")
        if not pb_utils.is_model_ready("embedder"):
            pb_utils.load_model("embedder")

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        tensor = pb_utils.get_input_tensor_by_name(request, "TEXT")
        if tensor is None:
            error = pb_utils.TritonError("TEXT is missing", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        embedded = self.embed(tensor, request)
        if embedded.has_error():
            return pb_utils.InferenceResponse(error=embedded.error())
        vector = pb_utils.get_output_tensor_by_name(embedded, "VECTOR")
        assert vector is not None
        score: npt.NDArray[np.float32] = vector.as_numpy().astype(np.float32)[:, :2]
        self.texts.increment(1)
        parameters: dict[str, str | int] = {"id": request.request_id(), "texts": len(score)}
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", score)], parameters=parameters)

    def embed(
        self, tensor: pb_utils.Tensor, request: pb_utils.InferenceRequest
    ) -> pb_utils.InferenceResponse:
        call = pb_utils.InferenceRequest(
            model_name="embedder",
            requested_output_names=["VECTOR"],
            inputs=[tensor],
            request_id=request.request_id(),
            correlation_id=request.correlation_id(),
            flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
            timeout=request.timeout(),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
            trace=request.trace(),
        )
        return call.exec()

    def finalize(self) -> None:
        self.logger.log("bye", self.logger.INFO)


class AsyncModel:
    async def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="other", requested_output_names=["Y"], inputs=request.inputs()
            )
            response = await call.async_exec()
            names: list[str] = [output.name() for output in response.output_tensors()]
            responses.append(
                pb_utils.InferenceResponse(response.output_tensors(), parameters={"n": len(names)})
            )
            parts = await call.async_exec(decoupled=True)
            async for part in parts:
                if part.has_error():
                    parts.cancel()
        return responses


class DecoupledModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        for request in requests:
            threading.Thread(target=self.stream, args=(request.get_response_sender(), request)).start()

    def stream(self, sender: pb_utils.InferenceResponseSender, request: pb_utils.InferenceRequest) -> None:
        call = pb_utils.InferenceRequest(
            model_name="words", requested_output_names=["WORD"], inputs=request.inputs()
        )
        for response in call.exec(decoupled=True):
            if sender.is_cancelled():
                break
            sender.send(pb_utils.InferenceResponse(response.output_tensors()))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class IterativeModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse | None]:
        requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [None for _ in requests]


def tensors_of_other_frameworks(capsule: object) -> pb_utils.Tensor:
    tensor = pb_utils.Tensor.from_dlpack("X", capsule)
    numbers: np.ndarray[Any, Any] = np.from_dlpack(tensor)
    assert tensor.is_cpu()
    assert tensor.shape() == list(numbers.shape)
    data_type: int = tensor.triton_dtype()
    assert pb_utils.triton_to_numpy_type(data_type) is not None
    return tensor
