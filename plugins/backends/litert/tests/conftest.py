"""Models of `tests/files`, loaded through the hooks of the installed backend."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
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
