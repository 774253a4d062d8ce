"""How strict a served TensorFlow Lite model is about batch sizes: files, configuration and clients say it.

Every line of the tables is a model of its own, loaded by LiteRT; all lie in one server's repository.
"""

from __future__ import annotations

import pytest
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BatchSizeStrictness
from tritonpy_sdk.testing.graph_batch_sizes import GRAPH_LOADS, GRAPH_REFUSALS


@pytest.fixture(scope="module")
def write_model(litert, content):
    def write(root, name, file, config=None):
        return ModelRepository(root).model(name, config, {"model.tflite": content(file)})

    return write


class TestStrictness(BatchSizeStrictness, backend="litert", loads=GRAPH_LOADS, refusals=GRAPH_REFUSALS):
    pass
