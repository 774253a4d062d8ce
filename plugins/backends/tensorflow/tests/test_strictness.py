"""How strict a served TensorFlow model is about batch sizes: files, configuration and clients say it.

Every line of the tables is a model of its own; all lie in one server's repository.
"""

from __future__ import annotations

import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import BatchSizeStrictness
from tritonpy_sdk.testing.batch_sizes import (
    DIMS,
    DIMS_WITH_BATCH,
    post,
    quiet_options,
    tensors,
)

DYNAMIC = {"dynamic_batching": {}}
NO_BATCHES = (
    "Internal: unable to autofill for '{name}', configuration specified max-batch %d but model signature "
    "does not support batching"
)
CONTRADICTION = (
    "Internal: unable to autofill for '{name}', model tensor configurations are contradicting each other in "
    "terms of whether batching is supported"
)
# name: (file, configuration, max_batch_size, dynamic batching, dims of X, shapes that are served, shapes that
# are refused)
LOADS = {
    # A signature with a batch of one.
    "fixed_alone": ("fixed", None, 0, False, [1, 3], [[1, 3]], [[2, 3], [3]]),
    "fixed_zero": ("fixed", {"max_batch_size": 0}, 0, False, [1, 3], [[1, 3]], [[2, 3]]),
    "fixed_dims": ("fixed", tensors([1, 3]), 0, False, [1, 3], [[1, 3]], [[2, 3], [3]]),
    "fixed_reshaped": ("fixed", tensors([3], reshape={"shape": [1, 3]}), 0, False, [3], [[3]], [[1, 3]]),
    # A signature with a batch of any size.
    "variable_alone": ("variable", None, 4, True, [3], [[1, 3], [4, 3]], [[5, 3], [3]]),
    "variable_zero": ("variable", {"max_batch_size": 0}, 4, True, [3], [[1, 3], [4, 3]], [[5, 3]]),
    "variable_one": ("variable", {"max_batch_size": 1}, 1, False, [3], [[1, 3]], [[2, 3]]),
    "variable_eight": ("variable", {"max_batch_size": 8}, 8, True, [3], [[8, 3]], [[9, 3]]),
    "variable_any": ("variable", tensors([-1, 3]), 0, False, [-1, 3], [[1, 3], [50, 3]], [[3]]),
    "variable_input_only": (
        "variable", {"input": tensors([-1, 3])["input"]}, 0, False, [-1, 3], [[1, 3], [50, 3]], [],
    ),
    "variable_bound": ("variable", tensors([2, 3]), 0, False, [2, 3], [[2, 3]], [[1, 3]]),
    # Dims without that of the batch are a hint that the model is to batch.
    "variable_hint": ("variable", tensors([3]), 4, True, [3], [[1, 3], [4, 3]], [[5, 3]]),
    # As in Triton, a configuration that is complete gets dynamic batching, too.
    "variable_dims": ("variable", {"max_batch_size": 8} | tensors([3]), 8, True, [3], [[8, 3]], [[9, 3]]),
    "variable_batched": (
        "variable", {"max_batch_size": 8} | tensors([3]) | DYNAMIC, 8, True, [3], [[8, 3]], [[9, 3]],
    ),
    "variable_preferred": (
        "variable",
        {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [2, 8]}},
        8, True, [3], [[1, 3], [8, 3]], [[9, 3]],
    ),
    "variable_named": (
        "variable", {"max_batch_size": 2, "input": [{"name": "X"}]}, 2, True, [3], [[2, 3]], [[3, 3]],
    ),
    "free_dims": ("free", {"max_batch_size": 2} | tensors([-1]), 2, True, [-1], [[2, 7], [1, 1]], [[3, 7]]),
    "rows_alone": ("rows", None, 4, True, [1], [[1, 1], [4, 1]], [[5, 1]]),
    # Signatures that cannot batch for other reasons.
    "scalar_alone": ("scalar", None, 0, False, [1], [[1]], [[2]]),
    "half_fixed_alone": ("half_fixed", None, 0, False, [-1, 3], [[1, 3], [5, 3]], [[3]]),
    # What the signature does not say is taken from the configuration.
    "unknown_dims": ("unknown", tensors([3]), 0, False, [3], [[3]], [[1, 3]]),
    "unknown_batch": ("unknown", {"max_batch_size": 2} | tensors([3]), 2, True, [3], [[2, 3]], [[3, 3]]),
    # GraphDefs: what the configuration says, where it says it.
    "graph_fixed": ("graph", tensors([1, 3]), 0, False, [1, 3], [[1, 3]], [[2, 3], [3]]),
    "graph_any": ("graph", tensors([-1, 3]), 0, False, [-1, 3], [[1, 3], [50, 3]], [[3]]),
    "graph_batch": ("graph", {"max_batch_size": 8} | tensors([3]), 8, False, [3], [[8, 3]], [[9, 3], [3]]),
    "graph_batched": (
        "graph", {"max_batch_size": 8} | tensors([3]) | DYNAMIC, 8, True, [3], [[1, 3], [8, 3]], [[9, 3]],
    ),
    "graph_alone": ("graph", None, 4, True, [3], [[4, 3]], [[5, 3]]),
}  # fmt: skip

# name: (file, configuration, the reason that the index shows)
REFUSALS = {
    "fixed_any": ("fixed", tensors([-1, 3]), DIMS % ("X", 2, "[1,3]", 2, "[-1,3]")),
    "fixed_two": ("fixed", tensors([2, 3]), DIMS % ("X", 2, "[1,3]", 2, "[2,3]")),
    "fixed_short": ("fixed", tensors([3]), DIMS % ("X", 2, "[1,3]", 1, "[3]")),
    "fixed_batch_one": ("fixed", {"max_batch_size": 1}, NO_BATCHES % 1),
    "fixed_batch_dims": ("fixed", {"max_batch_size": 4} | tensors([3]), NO_BATCHES % 4),
    "fixed_batch_full_dims": ("fixed", {"max_batch_size": 1} | tensors([1, 3]), NO_BATCHES % 1),
    "fixed_preferred": (
        "fixed", {"max_batch_size": 2, "dynamic_batching": {"preferred_batch_size": [2]}}, NO_BATCHES % 2,
    ),
    "scalar_batch": ("scalar", {"max_batch_size": 1}, NO_BATCHES % 1),
    "scalar_vector": ("scalar", tensors([2]), DIMS % ("X", 0, "[]", 1, "[2]")),
    "half_fixed_batch": ("half_fixed", {"max_batch_size": 2}, NO_BATCHES % 2),
    "variable_batch_full_dims": (
        "variable",
        {"max_batch_size": 4} | tensors([-1, 3]),
        DIMS_WITH_BATCH % ("X", 2, "[-1,3]", 3, "[-1,-1,3]"),
    ),
    "variable_wrong_dims": (
        "variable", {"max_batch_size": 4} | tensors([5]), DIMS_WITH_BATCH % ("X", 2, "[-1,3]", 2, "[-1,5]"),
    ),
    "variable_contradiction": (
        "variable", {"input": tensors([3])["input"], "output": tensors([-1, 3])["output"]}, CONTRADICTION,
    ),
    "variable_datatype": (
        "variable",
        {"max_batch_size": 4} | tensors([3], "TYPE_INT32"),
        "unable to load model '{name}', configuration expects datatype TYPE_INT32 for "
        "input 'X', model provides TYPE_FP32",
    ),
    "variable_name": (
        "variable",
        {
            "max_batch_size": 4,
            "input": [{"name": "Q", "data_type": "TYPE_FP32", "dims": [3]}],
        },
        "unable to load model '{name}', configuration expects 2 inputs, model provides 1",
    ),
    "unknown_alone": (
        "unknown",
        None,
        "unable to autofill for '{name}': the rank of model tensor 'X' is 0 which is not "
        "supported; the model says of no dimension, so that the configuration has to",
    ),
    "graph_datatype": (
        "graph",
        tensors([-1, 3], "TYPE_INT64"),
        "unable to load model '{name}', configuration expects datatype TYPE_INT64 for "
        "input 'X', model provides TYPE_FP32",
    ),
    "graph_rank": ("graph", tensors([3]), DIMS % ("X", 2, "[-1,3]", 1, "[3]")),
    "graph_output_only": (
        "graph",
        {"max_batch_size": 4, "output": [{"name": "Q", "data_type": "TYPE_FP32", "dims": [3]}]},
        "unexpected inference output 'Q', allowed outputs are: Y",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tf, saved, saved_v1, frozen):
    def negative(X):
        return {"Y": -X}

    def unknown(v1):
        x = v1.placeholder("float32", name="X")
        return {"X": x}, {"Y": -x}

    def graph(v1):
        v1.negative(v1.placeholder("float32", [None, 3], name="X"), name="Y")

    return {
        "fixed": saved(negative, {"X": (tf.float32, [1, 3])}),
        "variable": saved(negative, {"X": (tf.float32, [None, 3])}),
        "free": saved(negative, {"X": (tf.float32, [None, None])}),
        "rows": saved(negative, {"X": (tf.float32, [None])}),
        "scalar": saved(negative, {"X": (tf.float32, [])}),
        "half_fixed": saved(
            lambda X: {"Y": tf.reduce_sum(X, 0, keepdims=True)}, {"X": (tf.float32, [None, 3])}
        ),
        "unknown": saved_v1(unknown),
        "graph": frozen(graph),
    }


@pytest.fixture(scope="module")
def write_model(files, place):
    def write(root, name, file, config=None):
        return place(root, files[file], config, name=name)

    return write


class TestStrictness(BatchSizeStrictness, backend="tensorflow", loads=LOADS, refusals=REFUSALS):
    pass


def test_a_complete_configuration_that_does_not_fit_is_refused_without_auto_complete_too(
    tmp_path, files, place
):
    config = {"platform": "tensorflow_savedmodel", "max_batch_size": 8} | tensors([3])
    place(tmp_path, files["fixed"], config, name="fixed")

    with Server(quiet_options(tmp_path, auto_complete_config=False)) as server:
        _, index = post(server, "/v2/repository/index", {})

    assert index[0]["reason"] == (
        "Invalid argument: model 'fixed', tensor 'X': for the model to support batching the shape should "
        "have at "
        "least 1 dimension and the first dimension must be -1; but shape expected by the model is [1,3]"
    )
