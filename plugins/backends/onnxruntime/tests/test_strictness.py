"""How strict a served ONNX model is about batch sizes: what its file, its configuration and its clients say.

Every line of the tables is a model of its own, loaded by ONNX Runtime; all lie in one server's repository.
"""

from __future__ import annotations

import pytest
from onnx import parser
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BatchSizeStrictness
from tritonpy_sdk.testing.batch_sizes import (
    config_of,
    infer,
    post,
    quiet_options,
)
from tritonpy_sdk.testing.graph_batch_sizes import GRAPH_LOADS, GRAPH_REFUSALS

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
FILES = {
    "fixed": "net (float[1,3] X) => (float[1,3] Y) { Y = Neg(X) }",
    "variable": "net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }",
    "free": "net (float[N,K] X) => (float[N,K] Y) { Y = Neg(X) }",
    "rows": "net (float[N] X) => (float[N] Y) { Y = Neg(X) }",
    "scalar": "net (float X) => (float Y) { Y = Neg(X) }",
    "half_fixed": "net (float[N,3] X) => (float[1,3] Y) "
    "{ axes = Constant<value = int64[1] {0}>() Y = ReduceSum(X, axes) }",
    "two": "net (float[N,3] X, int64[N] I) => (float[N,3] Y) { F = Cast<to = 1>(I) Y = Neg(X) }",
}


def onnx_model(name):
    return parser.parse_model(HEADER + FILES[name]).SerializeToString()


@pytest.fixture(scope="module")
def write_model():
    def write(root, name, file, config=None):
        return ModelRepository(root).onnx(name, onnx_model(file), config)

    return write


class TestStrictness(BatchSizeStrictness, backend="onnxruntime", loads=GRAPH_LOADS, refusals=GRAPH_REFUSALS):
    pass


def test_model_file_may_have_another_name_or_be_a_directory(tmp_path):
    repository = ModelRepository(tmp_path)
    content = onnx_model("variable")
    named = {"backend": "onnxruntime", "default_model_filename": "net.onnx"}
    repository.model("named", named, {"net.onnx": content})
    repository.model("folder", None, {"model.onnx/model.onnx": content})
    repository.model("named_folder", named, {"net.onnx/model.onnx": content})
    repository.model("wrong", named, {"other.onnx": content})

    with Server(quiet_options(tmp_path)) as server:
        for name in ("named", "folder", "named_folder"):
            assert infer(server, name, [2, 3])[0] == 200
            assert config_of(server, name)["max_batch_size"] == 4
        _, index = post(server, "/v2/repository/index", {})

    (reason,) = [entry["reason"] for entry in index if entry["name"] == "wrong"]
    path = tmp_path / "wrong/1/net.onnx"
    assert reason == f"Not found: unable to find '{path}' or '{path}/model.onnx' for model 'wrong', version 1"
