"""Methods that `@batched` takes: nothing in here is an error."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils
from tritonpy_model import Inputs, Outputs, RaggedInputs, batched


class Plain:
    scale = 2.0

    @batched
    def execute(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"Y": inputs["X"] * self.scale}


class Precise:
    @batched
    def execute(self, inputs: dict[str, npt.NDArray[np.float32]]) -> dict[str, npt.NDArray[np.float32]]:
        return {"Y": inputs["X"] * np.float32(2)}


class Named:
    @batched
    def execute(self, inputs: Inputs) -> Outputs:
        return {"Y": inputs["X"], "Z": [inputs["X"]]}


class ReadOnly:
    @batched
    def execute(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        return inputs


class Ragged:
    @batched
    def execute(
        self, inputs: dict[str, np.ndarray | list[np.ndarray]]
    ) -> dict[str, np.ndarray | list[np.ndarray]]:
        tokens = inputs["TOKENS"]
        return {"Y": tokens[0] if isinstance(tokens, list) else tokens}


class AlwaysRagged:
    @batched(ragged=["TOKENS"])
    def execute(self, inputs: RaggedInputs) -> Outputs:
        tokens = inputs["TOKENS"]
        assert isinstance(tokens, list)
        return {"LENGTH": [np.full((len(one), 1), one.shape[1]) for one in tokens]}


class Async:
    @batched
    async def execute(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"Y": inputs["X"]}


class AsyncRagged:
    @batched(ragged={"TOKENS"})
    async def execute(self, inputs: RaggedInputs) -> dict[str, np.ndarray]:
        return {"Y": np.zeros(1)}


def what_a_server_calls(requests: list[pb_utils.InferenceRequest]) -> None:
    assert_type(Plain().execute(requests), list[pb_utils.InferenceResponse])
    assert_type(Precise().execute(requests), list[pb_utils.InferenceResponse])
    assert_type(AlwaysRagged().execute(requests), list[pb_utils.InferenceResponse])
    _ = assert_type(Async().execute(requests), Coroutine[Any, Any, list[pb_utils.InferenceResponse]])
    _ = assert_type(AsyncRagged().execute(requests), Coroutine[Any, Any, list[pb_utils.InferenceResponse]])
