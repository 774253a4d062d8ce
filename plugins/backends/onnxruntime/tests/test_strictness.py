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
    DIMS,
    DIMS_WITH_BATCH,
    FIRST_NOT_FREE,
    NO_BATCHES,
    config_of,
    infer,
    post,
    quiet_options,
    tensors,
)

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


DYNAMIC = {"dynamic_batching": {}}
# name: (file, configuration, max_batch_size, dynamic batching, dims of X, shapes that are served, shapes that
# are refused)
LOADS = {
    # A file with a batch of one.
    "fixed_alone": ("fixed", None, 0, False, [1, 3], [[1, 3]], [[2, 3], [3]]),
    "fixed_zero": ("fixed", {"max_batch_size": 0}, 0, False, [1, 3], [[1, 3]], [[2, 3]]),
    "fixed_dims": ("fixed", tensors([1, 3]), 0, False, [1, 3], [[1, 3]], [[2, 3]]),
    "fixed_zero_dims": (
        "fixed",
        {"max_batch_size": 0} | tensors([1, 3]),
        0,
        False,
        [1, 3],
        [[1, 3]],
        [[2, 3], [3]],
    ),
    "fixed_reshaped": (
        "fixed",
        tensors([3], reshape={"shape": [1, 3]}),
        0,
        False,
        [3],
        [[3]],
        [[1, 3]],
    ),
    # A file with a batch of any size.
    "variable_alone": ("variable", None, 4, True, [3], [[1, 3], [4, 3]], [[5, 3], [3]]),
    "variable_zero": ("variable", {"max_batch_size": 0}, 4, True, [3], [[1, 3], [4, 3]], [[5, 3]]),
    "variable_one": ("variable", {"max_batch_size": 1}, 1, False, [3], [[1, 3]], [[2, 3]]),
    "variable_eight": ("variable", {"max_batch_size": 8}, 8, True, [3], [[8, 3]], [[9, 3]]),
    "variable_any": (
        "variable",
        {"max_batch_size": 0} | tensors([-1, 3]),
        0,
        False,
        [-1, 3],
        [[1, 3], [50, 3]],
        [[3]],
    ),
    "variable_any_input_only": (
        "variable",
        {"input": tensors([-1, 3])["input"]},
        0,
        False,
        [-1, 3],
        [[1, 3], [50, 3]],
        [],
    ),
    "variable_bound": ("variable", tensors([2, 3]), 0, False, [2, 3], [[2, 3]], [[1, 3]]),
    "variable_dims": (
        "variable",
        {"max_batch_size": 8} | tensors([3]),
        8,
        False,
        [3],
        [[1, 3], [8, 3]],
        [[9, 3]],
    ),
    "variable_dims_batched": (
        "variable",
        {"max_batch_size": 8} | tensors([3]) | DYNAMIC,
        8,
        True,
        [3],
        [[1, 3], [8, 3]],
        [[9, 3]],
    ),
    "variable_preferred": (
        "variable",
        {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [2, 8]}},
        8,
        True,
        [3],
        [[1, 3], [8, 3]],
        [[9, 3]],
    ),
    "free_dims": (
        "free",
        {"max_batch_size": 2} | tensors([-1]),
        2,
        False,
        [-1],
        [[2, 7], [1, 1]],
        [[3, 7]],
    ),
    "rows_alone": ("rows", None, 4, True, [1], [[1, 1], [4, 1]], [[5, 1]]),
    # Files that cannot batch for other reasons.
    "scalar_alone": ("scalar", None, 0, False, [1], [[1]], [[2]]),
    "scalar_zero": ("scalar", {"max_batch_size": 0}, 0, False, [1], [[1]], [[2]]),
    "half_fixed_alone": ("half_fixed", None, 0, False, [-1, 3], [[1, 3], [5, 3]], [[3]]),
}

# name: (file, configuration, the reason that the index shows)
REFUSALS = {
    "fixed_any": ("fixed", tensors([-1, 3]), DIMS % ("X", 2, "[1,3]", 2, "[-1,3]")),
    "fixed_two": ("fixed", tensors([2, 3]), DIMS % ("X", 2, "[1,3]", 2, "[2,3]")),
    "fixed_short": ("fixed", tensors([3]), DIMS % ("X", 2, "[1,3]", 1, "[3]")),
    "fixed_batch_one": ("fixed", {"max_batch_size": 1}, NO_BATCHES),
    "fixed_batch_two": ("fixed", {"max_batch_size": 2}, NO_BATCHES),
    "fixed_preferred": (
        "fixed",
        {"max_batch_size": 2, "dynamic_batching": {"preferred_batch_size": [2]}},
        NO_BATCHES,
    ),
    "fixed_batch_one_dims": ("fixed", {"max_batch_size": 1} | tensors([3]), FIRST_NOT_FREE % "[1,3]"),
    "fixed_batch_dims": ("fixed", {"max_batch_size": 4} | tensors([3]), FIRST_NOT_FREE % "[1,3]"),
    "fixed_batch_full_dims": ("fixed", {"max_batch_size": 1} | tensors([1, 3]), FIRST_NOT_FREE % "[1,3]"),
    "scalar_batch": ("scalar", {"max_batch_size": 1}, NO_BATCHES),
    "scalar_batch_dims": ("scalar", {"max_batch_size": 1} | tensors([1]), FIRST_NOT_FREE % "[]"),
    "scalar_vector": ("scalar", tensors([2]), DIMS % ("X", 0, "[]", 1, "[2]")),
    "half_fixed_batch": ("half_fixed", {"max_batch_size": 2}, NO_BATCHES),
    "variable_batch_full_dims": (
        "variable",
        {"max_batch_size": 4} | tensors([-1, 3]),
        DIMS_WITH_BATCH % ("X", 2, "[-1,3]", 3, "[-1,-1,3]"),
    ),
    "variable_wrong_dims": (
        "variable",
        {"max_batch_size": 4} | tensors([5]),
        DIMS_WITH_BATCH % ("X", 2, "[-1,3]", 2, "[-1,5]"),
    ),
    "variable_short": ("variable", tensors([3]), DIMS % ("X", 2, "[-1,3]", 1, "[3]")),
    "variable_datatype": (
        "variable",
        {"max_batch_size": 4} | tensors([3], "TYPE_INT32"),
        "unable to load model '{name}', configuration expects datatype TYPE_INT32 for input 'X', model "
        "provides TYPE_FP32",
    ),
    "two_count": (
        "two",
        {"max_batch_size": 4} | tensors([3]),
        "unable to load model '{name}', configuration expects 1 inputs, model provides 2",
    ),
    "variable_name": (
        "variable",
        {
            "max_batch_size": 4,
            "input": [{"name": "Q", "data_type": "TYPE_FP32", "dims": [3]}],
            "output": tensors([3])["output"],
        },
        "unexpected inference input 'Q', allowed inputs are: X",
    ),
}


def onnx_model(name):
    return parser.parse_model(HEADER + FILES[name]).SerializeToString()


@pytest.fixture(scope="module")
def write_model():
    def write(root, name, file, config=None):
        return ModelRepository(root).onnx(name, onnx_model(file), config)

    return write


class TestStrictness(BatchSizeStrictness, loads=LOADS, refusals=REFUSALS):
    def test_preferred_sizes_stay_as_they_are_configured(self, server):
        sizes = [
            config_of(server, name)["dynamic_batching"]["preferred_batch_size"]
            for name in ("variable_preferred", "variable_alone")
        ]

        assert sizes == [[2, 8], [4]]


@pytest.mark.parametrize(
    ("backend_config", "size", "is_dynamic"),
    [
        ([("", "default-max-batch-size", "16")], 16, True),
        ([("onnxruntime", "default-max-batch-size", "2")], 2, True),
        (
            [("onnxruntime", "default-max-batch-size", "2"), ("", "default-max-batch-size", "16")],
            2,
            True,
        ),
        ([("python", "default-max-batch-size", "2")], 4, True),
        ([("", "default-max-batch-size", "1")], 1, False),
        ([("", "default-max-batch-size", "0")], 0, False),
    ],
)
def test_default_batch_size_comes_from_the_command_line(tmp_path, backend_config, size, is_dynamic):
    repository = ModelRepository(tmp_path)
    repository.onnx("net", onnx_model("variable"))
    repository.onnx("own", onnx_model("variable"), {"max_batch_size": 8})
    repository.onnx("fixed", onnx_model("fixed"))

    with Server(quiet_options(tmp_path, backend_config=tuple(backend_config))) as server:
        found = config_of(server, "net")
        assert (found["max_batch_size"], "dynamic_batching" in found) == (size, is_dynamic)
        assert config_of(server, "own")["max_batch_size"] == 8
        assert config_of(server, "fixed")["max_batch_size"] == 0


def test_default_batch_size_that_is_no_number_makes_the_model_unavailable_and_says_why(tmp_path):
    ModelRepository(tmp_path).onnx("net", onnx_model("variable"))
    setting = ("", "default-max-batch-size", "many")

    with Server(quiet_options(tmp_path, backend_config=(setting,))) as server:
        _, index = post(server, "/v2/repository/index", {})

    assert index[0]["state"] == "UNAVAILABLE"
    assert (
        "--backend-config=onnxruntime,default-max-batch-size: got 'many', expected a whole number"
        in (index[0]["reason"])
    )


def test_without_auto_complete_nothing_is_filled_in(tmp_path):
    repository = ModelRepository(tmp_path)
    whole = {"backend": "onnxruntime", "max_batch_size": 8} | tensors([3])
    repository.onnx("whole", onnx_model("variable"), whole)
    repository.onnx("none", onnx_model("variable"))

    with Server(quiet_options(tmp_path, auto_complete_config=False)) as server:
        _, index = post(server, "/v2/repository/index", {})
        assert "dynamic_batching" not in config_of(server, "whole")

    states = {entry["name"]: entry.get("state") for entry in index}
    assert states["whole"] == "READY"
    assert states["none"] != "READY"


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
