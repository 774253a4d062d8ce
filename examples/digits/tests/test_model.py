"""The committed network, its images and its request, checked by ONNX Runtime alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

EXAMPLE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    model = EXAMPLE / "models/digits/1/model.onnx"
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def test_model_takes_any_batch_of_images_and_gives_scores(session: onnxruntime.InferenceSession) -> None:
    (image,), (scores,) = session.get_inputs(), session.get_outputs()

    assert (image.name, image.type, image.shape) == ("image", "tensor(float)", ["batch", 1, 8, 8])
    assert (scores.name, scores.type, scores.shape) == ("scores", "tensor(float)", ["batch", 10])


def test_held_out_images_are_read_with_the_accuracy_the_example_promises(
    session: onnxruntime.InferenceSession,
) -> None:
    with np.load(EXAMPLE / "images/heldout.npz") as file:
        pixels, labels = file["pixels"], file["labels"]

    (scores,) = session.run(None, {"image": (pixels[:, np.newaxis] / 255).astype(np.float32)})

    assert (pixels.dtype, pixels.shape) == (np.uint8, (360, 8, 8))
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-5)
    assert set(np.bincount(labels)) <= {35, 36, 37}  # as many of every digit
    assert np.mean(scores.argmax(axis=1) == labels) >= 0.98


def test_ready_made_request_and_image_files_show_the_digits_they_are_named_after(
    session: onnxruntime.InferenceSession,
) -> None:
    (tensor,) = json.loads((EXAMPLE / "requests/seven.json").read_text())["inputs"]
    image = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
    files = {name: (EXAMPLE / f"images/{name}.pgm").read_bytes() for name in ("zero", "three", "seven")}
    pixels = [np.frombuffer(file, np.uint8, count=64, offset=len(file) - 64) for file in files.values()]
    drawn = (np.reshape(pixels, (3, 1, 8, 8)) / 255).astype(np.float32)

    (asked,) = session.run(None, {"image": image})
    (read,) = session.run(None, {"image": drawn})

    assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("image", "FP32", [1, 1, 8, 8])
    assert asked.argmax(axis=1).tolist() == [7]
    assert read.argmax(axis=1).tolist() == [0, 3, 7]
