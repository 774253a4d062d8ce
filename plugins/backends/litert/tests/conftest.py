"""Models of `tests/files`, loaded through the hooks of the installed backend."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tritonpy.plugin import InferRequest, Tensor
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver

FILES, MODELS = (Path(__file__).resolve().parent / name for name in ("files", "models"))


@pytest.fixture(scope="session")
def litert():
    return pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")


@pytest.fixture(scope="session")
def content():
    """The content of a file of `tests/files`, or of a model of `tests/models`."""

    def read(name):
        path = FILES / f"{name}.tflite"
        return (path if path.exists() else MODELS / name / "1/model.tflite").read_bytes()

    return read


@pytest.fixture
def load(litert, tmp_path, content):
    """Load a model by its file or content and its configuration; finalised when the test is over."""
    with ExitStack() as stack:

        def start(model, config=None, *, settings=None, filename="model.tflite"):
            data = content(model) if isinstance(model, str) else model
            ModelRepository(tmp_path).model("net", config, {filename: data})
            return stack.enter_context(BackendDriver("litert", tmp_path, settings).load("net"))

        yield start


@pytest.fixture
def request_of():
    """Make a request from arrays or tensors; `rows` is what the server counted."""

    def make(rows=1, outputs=None, **inputs):
        tensors = {
            name: value if isinstance(value, Tensor) else Tensor.from_numpy(name, np.asarray(value))
            for name, value in inputs.items()
        }
        request = InferRequest("net", tensors, requested_outputs=outputs)
        request.batch_size = rows
        return request

    return make


@pytest.fixture
def ask(request_of):
    """Run one request and return its outputs as lists; raises what it was answered."""

    def run(model, rows=1, outputs=None, instance=0, **inputs):
        (answer,) = model.execute([request_of(rows, outputs, **inputs)], instance)
        if answer.only.error is not None:
            raise answer.only.error
        return {output.name: output.numpy().tolist() for output in answer.only.outputs}

    return run
