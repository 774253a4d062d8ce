"""Models written as ONNX text, loaded through the hooks of the installed backend."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from onnx import parser
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


@pytest.fixture
def onnx():
    """Serialize a model written as ONNX text: `net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }`."""
    return lambda text: parser.parse_model(HEADER + text).SerializeToString()


@pytest.fixture
def load(tmp_path, onnx):
    """Load a model by its ONNX text and configuration, in this process; finalised when the test is over."""
    with ExitStack() as stack:

        def start(text, config=None, *, name="net", settings=None):
            repository = ModelRepository(tmp_path)
            if not (tmp_path / name).exists():
                repository.onnx(name, onnx(text), config)
            return stack.enter_context(BackendDriver("onnxruntime", tmp_path, settings).load(name))

        yield start
