"""The backend xyz: the rules of all backends, and what it computes, without a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tritonpy_backend_xyz
from tritonpy.plugin import InferRequest, InvalidArg, Tensor
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendConformance, BackendDriver

MODELS = Path(__file__).parents[1] / "models"


class TestConformance(BackendConformance, backend=tritonpy_backend_xyz, models=MODELS): ...


def ask(*values: float) -> InferRequest:
    array = np.array([[value] for value in values], np.float32)
    return InferRequest("parabola", {"X": Tensor.from_numpy("X", array)})


def test_each_request_of_a_batch_gets_its_own_values() -> None:
    with BackendDriver(tritonpy_backend_xyz, MODELS).load("parabola") as model:
        answers = model.execute([ask(0, 1), ask(3)])

    values = [answer.only.outputs[0].numpy().tolist() for answer in answers]
    assert values == [[[-2], [-1]], [[7]]]


def test_a_model_whose_file_is_wrong_says_which(tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("wrong", {"backend": "xyz"}, files={"coefficients.json": b"one, two"})

    with (
        pytest.raises(InvalidArg, match=r"model 'wrong': expected a JSON list of numbers in .*coefficients"),
        BackendDriver(tritonpy_backend_xyz, tmp_path).load("wrong"),
    ):
        pass
