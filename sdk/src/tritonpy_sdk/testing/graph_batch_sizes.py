"""Tables for `BatchSizeStrictness`, of backends whose files say a shape and a datatype of every tensor.

A backend with such files has models of these; each takes X and makes Y of it, its negative:

| File | X |
| --- | --- |
| `fixed` | FP32 [1, 3] |
| `variable` | FP32 [-1, 3] |
| `free` | FP32 [-1, -1] |
| `rows` | FP32 [-1] |
| `scalar` | FP32 [] |
| `half_fixed` | FP32 [-1, 3]; Y is FP32 [1, 3] |
| `two` | FP32 [-1, 3], and an INT64 [-1] I |
"""

from __future__ import annotations

from collections.abc import Mapping

from tritonpy.handles import JsonObject

from tritonpy_sdk.testing.batch_sizes import (
    DIMS,
    DIMS_WITH_BATCH,
    FIRST_NOT_FREE,
    NO_BATCHES,
    Load,
    Refusal,
    tensors,
)

_DYNAMIC: JsonObject = {"dynamic_batching": {}}
GRAPH_LOADS: Mapping[str, Load] = {
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
        {"max_batch_size": 8} | tensors([3]) | _DYNAMIC,
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

GRAPH_REFUSALS: Mapping[str, Refusal] = {
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
