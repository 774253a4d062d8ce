"""Python models to load: written and finalized with the test."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import load_python_model

HEAD = """
import asyncio, json, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def array(request, name="X"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def answer(**outputs):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])


class TritonPythonModel:
"""

CONFIG = """
backend: "python"
max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: 2 }
output { name: "Y" data_type: TYPE_FP32 dims: 2 }
"""


@pytest.fixture
def write(tmp_path):
    """Write a model whose class has this body; returns its directory."""
    repository = ModelRepository(tmp_path)

    def write(body, config=CONFIG, *, name="net", **files):
        source = HEAD + "".join(f"    {line}\n" for line in dedent(body).splitlines())
        path = repository.python(name, source, config)
        for file, text in files.items():
            (path / "1" / f"{file}.py").write_text(dedent(text))
        return path

    return write


@pytest.fixture
def load(write):
    """Load such a model; it is finalized with the test."""
    loaded = []

    def load(body, config=CONFIG, *, name="net", models=None, answer_timeout_s=30.0, **files):
        path = write(body, config, name=name, **files)
        loaded.append(load_python_model(path, models=models, answer_timeout_s=answer_timeout_s))
        return loaded[-1]

    yield load
    for model in loaded:
        model.finalize()
