"""A model that people use: basic-pitch, a SavedModel of TensorFlow 2 with variables and functions."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
from tritonpy_sdk.testing import request_of

try:  # the package itself imports much; its files are all that is needed
    DATA = Path(str(distribution("basic-pitch").locate_file("basic_pitch/saved_models/icassp_2022")))
except PackageNotFoundError:
    pytest.skip("basic-pitch is not installed: pip install --no-deps basic-pitch", allow_module_level=True)

SAMPLES, RATE = 43844, 22050


@pytest.fixture
def chords():
    """Two windows: an A with its fifth, and noise."""
    times = np.arange(SAMPLES) / RATE
    tone = 0.4 * np.sin(2 * np.pi * 440 * times) + 0.2 * np.sin(2 * np.pi * 660 * times)
    noise = np.random.default_rng(0).normal(size=SAMPLES) * 0.05
    return np.stack([tone, noise]).astype("f4")[..., None]


def test_it_is_completed_and_says_what_its_onnx_twin_says(load, chords):
    session = pytest.importorskip("onnxruntime").InferenceSession(DATA / "nmp.onnx")
    (given,) = session.get_inputs()
    places = [output.name for output in session.get_outputs()]  # as the graph of TensorFlow calls them
    expected = dict(zip(places, session.run(None, {given.name: chords}), strict=True))

    model = load(DATA / "nmp")
    ((name, dims),) = [(tensor["name"], tensor["dims"]) for tensor in model.config["input"]]
    answers = model.execute([request_of(**{name: chords[index : index + 1]}) for index in range(2)])

    assert (dims, model.config["max_batch_size"]) == ([SAMPLES, 1], 4)
    graph = model.handle.state.graph
    got = {
        graph.outputs[parts[0].name].tensor: np.concatenate([part.numpy() for part in parts])
        for parts in zip(*(answer.only.outputs for answer in answers), strict=True)
    }
    for place, array in expected.items():
        np.testing.assert_allclose(got[place], array, atol=2e-3)
    assert not graph.leaves_traces  # so that instances share its session
    loudest = got["StatefulPartitionedCall:1"][0].mean(0).argmax()
    assert loudest in (48, 55)  # the keys of the two tones
