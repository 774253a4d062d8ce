"""A model that people use: silero-vad, a TorchScript file with a number for an argument, and with a state."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
from tritonpy_sdk.testing import request_of

pytest.importorskip("torch")

try:  # the package itself imports torchaudio; its files are all that is needed
    DATA = Path(str(distribution("silero-vad").locate_file("silero_vad/data")))
except PackageNotFoundError:
    pytest.skip("silero-vad is not installed: pip install --no-deps silero-vad", allow_module_level=True)

CONFIG = {
    "input": [
        {"name": "x", "data_type": "TYPE_FP32", "dims": [1, 512]},
        {"name": "sr", "data_type": "TYPE_INT64", "dims": [1]},
    ],
    "output": [{"name": "speech", "data_type": "TYPE_FP32", "dims": [1, 1]}],
    "instance_group": [{"kind": "KIND_CPU", "count": 2}],
}
RATE = 16000


@pytest.fixture
def chunks():
    return (np.random.default_rng(0).normal(size=(8, 1, 512)) * 0.1).astype("f4")


@pytest.fixture
def expected(chunks):
    """What the same model says as an ONNX file, whose state goes in and out."""
    session = pytest.importorskip("onnxruntime").InferenceSession(DATA / "silero_vad.onnx")
    state, context = np.zeros((2, 1, 128), "f4"), np.zeros((1, 64), "f4")
    scores = []
    for chunk in chunks:
        x = np.concatenate([context, chunk], 1)
        score, state = session.run(None, {"input": x, "state": state, "sr": np.array(RATE)})
        scores.append(float(score[0, 0]))
        context = x[:, -64:]
    return scores


def test_the_file_says_what_its_onnx_twin_says_and_each_instance_has_its_state(load, chunks, expected):
    model = load((DATA / "silero_vad.jit").read_bytes(), CONFIG)

    def score(chunk, instance):
        (answer,) = model.execute([request_of(x=chunk, sr=np.array([RATE]))], instance)
        if answer.only.error is not None:
            raise answer.only.error
        return float(answer.only.outputs[0].numpy()[0, 0])

    # Two speakers at the same time, one a step behind.
    first, second = [score(chunks[0], 0)], []
    for index in range(1, len(chunks)):
        second.append(score(chunks[index - 1], 1))
        first.append(score(chunks[index], 0))

    assert first == pytest.approx(expected, abs=1e-6)
    assert second == pytest.approx(expected[:-1], abs=1e-6)


def test_a_rate_that_the_model_does_not_know_is_told(load, chunks):
    model = load((DATA / "silero_vad.jit").read_bytes(), CONFIG)

    (answer,) = model.execute([request_of(x=chunks[0], sr=np.array([11025]))])

    assert answer.only.error.message.startswith("PyTorch execute failure: ")
    assert "Supported sampling rates" in answer.only.error.message
