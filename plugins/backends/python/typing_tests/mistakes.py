"""Mistakes that a type checker finds before a server does; `# E:` says of what kind."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils
from tritonpy_model import batched

TENSOR = pb_utils.Tensor("X", np.zeros(1))
REQUEST = pb_utils.InferenceRequest(model_name="net", requested_output_names=["Y"], inputs=[TENSOR])


def unchecked_absence() -> np.ndarray:
    return pb_utils.get_input_tensor_by_name(REQUEST, "X").as_numpy()  # E: union-attr


def wrong_arguments() -> None:
    pb_utils.Tensor("X", [1.0])  # E: arg-type
    pb_utils.InferenceResponse(TENSOR)  # E: arg-type
    pb_utils.InferenceResponse(error="not found")  # E: arg-type
    pb_utils.InferenceResponse([TENSOR], parameters={"list": []})  # E: dict-item
    pb_utils.TritonError("not found", 2)  # E: arg-type
    pb_utils.Logger.log("hello", "INFO")  # E: arg-type
    pb_utils.MetricFamily("n", "N.", "counter")  # E: arg-type
    REQUEST.get_response_sender().send(TENSOR)  # E: arg-type
    REQUEST.inputs()[0].numpy()  # E: attr-defined


def responses_of_calls() -> None:
    for response in REQUEST.exec():  # E: attr-defined
        print(response)
    REQUEST.exec(decoupled=True).has_error()  # E: attr-defined


async def forgotten_await() -> bool:
    return REQUEST.async_exec().has_error()  # E: attr-defined, no-any-return


class Lists:
    @batched  # E: type-var
    def execute(self, inputs: dict[str, list[float]]) -> dict[str, np.ndarray]:
        return {"Y": np.array(inputs["X"])}


class Requests:
    @batched  # E: arg-type
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return []


class OneArray:
    @batched  # E: arg-type
    def execute(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return inputs["X"]


class NoNames:
    @batched(ragged=3)  # E: call-overload, untyped-decorator
    def execute(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return inputs


class Right:
    @batched
    def execute(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return inputs


def called_with_arrays(model: Right) -> None:
    model.execute({"X": np.zeros(1)})  # E: arg-type
    model.execute([TENSOR])  # E: list-item
