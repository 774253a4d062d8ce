"""The model xyz, loaded into this process, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import triton_python_backend_utils as pb_utils
from tritonpy_sdk.testing import PythonModel, load_python_model

MODEL = Path(__file__).parents[1] / "models/xyz"


@pytest.fixture
def model() -> Iterator[PythonModel]:
    with load_python_model(MODEL) as loaded:
        yield loaded


def test_lengths_of_vectors(model: PythonModel) -> None:
    outputs = model.infer({"X": [[3, 4], [0, 0]]})

    assert outputs["LENGTH"].tolist() == [[5], [0]]


def test_requests_of_a_batch_fail_alone(model: PythonModel) -> None:
    good, bad = model.infer_batch([{"X": [[3, 4, 12]]}, {"X": [[float("nan")]]}])

    assert good["LENGTH"].tolist() == [[13]]
    assert isinstance(bad.error, pb_utils.TritonError)
    assert bad.error.code() == pb_utils.TritonError.INVALID_ARG


def test_a_scale_that_is_no_number_is_named() -> None:
    config = (MODEL / "config.pbtxt").read_text().replace('"1"', '"long"')

    with (
        pytest.raises(pb_utils.TritonModelException, match="SCALE: got 'long', expected a number"),
        load_python_model(MODEL, config=config),
    ):
        pass
