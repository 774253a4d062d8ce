"""How strict a served PyTorch model is about batch sizes: its file, its configuration and its clients say it.

Every line of the tables is a model of its own; all lie in one server's repository.
"""

from __future__ import annotations

import pytest
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BatchSizeStrictness
from tritonpy_sdk.testing.batch_sizes import (
    DIMS,
    FIRST_NOT_FREE,
    NO_BATCHES,
    config_of,
    quiet_options,
    tensors,
)

torch = pytest.importorskip("torch")
from torch.export import Dim  # noqa: E402


class Negative(torch.nn.Module):
    def forward(self, X: torch.Tensor) -> dict[str, torch.Tensor]:  # as in the requests
        return {"Y": -X}


class Plain(torch.nn.Module):
    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return -X


class Sums(torch.nn.Module):
    def forward(self, X):
        return {"Y": X.sum(0, keepdim=True)}


DYNAMIC = {"dynamic_batching": {}}
# name: (file, configuration, max_batch_size, dynamic batching, dims of X, shapes that are served, shapes that
# are refused)
LOADS = {
    # A file with a batch of one.
    "fixed_alone": ("fixed", None, 0, False, [1, 3], [[1, 3]], [[2, 3], [3]]),
    "fixed_zero": ("fixed", {"max_batch_size": 0}, 0, False, [1, 3], [[1, 3]], [[2, 3]]),
    "fixed_dims": ("fixed", tensors([1, 3]), 0, False, [1, 3], [[1, 3]], [[2, 3]]),
    "fixed_reshaped": ("fixed", tensors([3], reshape={"shape": [1, 3]}), 0, False, [3], [[3]], [[1, 3]]),
    # A file with a batch of any size.
    "variable_alone": ("variable", None, 4, True, [3], [[1, 3], [4, 3]], [[5, 3], [3]]),
    "variable_zero": ("variable", {"max_batch_size": 0}, 4, True, [3], [[1, 3], [4, 3]], [[5, 3]]),
    "variable_one": ("variable", {"max_batch_size": 1}, 1, False, [3], [[1, 3]], [[2, 3]]),
    "variable_eight": ("variable", {"max_batch_size": 8}, 8, True, [3], [[8, 3]], [[9, 3]]),
    "variable_any": ("variable", tensors([-1, 3]), 0, False, [-1, 3], [[1, 3], [50, 3]], [[3]]),
    "variable_input_only": (
        "variable", {"input": tensors([-1, 3])["input"]}, 0, False, [-1, 3], [[1, 3], [50, 3]], [],
    ),
    "variable_bound": ("variable", tensors([2, 3]), 0, False, [2, 3], [[2, 3]], [[1, 3]]),
    "variable_dims": ("variable", {"max_batch_size": 8} | tensors([3]), 8, False, [3], [[8, 3]], [[9, 3]]),
    "variable_batched": (
        "variable", {"max_batch_size": 8} | tensors([3]) | DYNAMIC, 8, True, [3], [[8, 3]], [[9, 3]],
    ),
    "variable_preferred": (
        "variable",
        {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [2, 8]}},
        8, True, [3], [[1, 3], [8, 3]], [[9, 3]],
    ),
    "bounded_alone": ("bounded", None, 3, True, [3], [[1, 3], [3, 3]], [[4, 3]]),
    "free_dims": ("free", {"max_batch_size": 2} | tensors([-1]), 2, False, [-1], [[2, 7], [1, 1]], [[3, 7]]),
    "rows_alone": ("rows", None, 4, True, [1], [[1, 1], [4, 1]], [[5, 1]]),
    # Files that cannot batch for other reasons.
    "scalar_alone": ("scalar", None, 0, False, [1], [[1]], [[2]]),
    "half_fixed_alone": ("half_fixed", None, 0, False, [-1, 3], [[1, 3], [5, 3]], [[3]]),
    # TorchScript says nothing of shapes: the configuration is believed.
    "script_fixed": ("script", tensors([1, 3]), 0, False, [1, 3], [[1, 3]], [[2, 3], [3]]),
    "script_any": ("script", tensors([-1, 3]), 0, False, [-1, 3], [[1, 3], [50, 3]], [[3]]),
    "script_bound": ("script", tensors([2, 3]), 0, False, [2, 3], [[2, 3]], [[1, 3]]),
    "script_batch": ("script", {"max_batch_size": 8} | tensors([3]), 8, False, [3], [[8, 3]], [[9, 3], [3]]),
    "script_batched": (
        "script", {"max_batch_size": 8} | tensors([3]) | DYNAMIC, 8, True, [3], [[1, 3], [8, 3]], [[9, 3]],
    ),
    "traced_batch": ("traced", {"max_batch_size": 8} | tensors([3]), 8, False, [3], [[8, 3]], [[9, 3]]),
}  # fmt: skip

# name: (file, configuration, the reason that the index shows)
REFUSALS = {
    "fixed_any": ("fixed", tensors([-1, 3]), DIMS % ("X", 2, "[1,3]", 2, "[-1,3]")),
    "fixed_two": ("fixed", tensors([2, 3]), DIMS % ("X", 2, "[1,3]", 2, "[2,3]")),
    "fixed_short": ("fixed", tensors([3]), DIMS % ("X", 2, "[1,3]", 1, "[3]")),
    "fixed_batch_one": ("fixed", {"max_batch_size": 1}, NO_BATCHES),
    "fixed_batch_dims": ("fixed", {"max_batch_size": 4} | tensors([3]), FIRST_NOT_FREE % "[1,3]"),
    "fixed_batch_full_dims": ("fixed", {"max_batch_size": 1} | tensors([1, 3]), FIRST_NOT_FREE % "[1,3]"),
    "scalar_batch": ("scalar", {"max_batch_size": 1}, NO_BATCHES),
    "scalar_vector": ("scalar", tensors([2]), DIMS % ("X", 0, "[]", 1, "[2]")),
    "half_fixed_batch": ("half_fixed", {"max_batch_size": 2}, NO_BATCHES),
    "bounded_nine": (
        "bounded",
        {"max_batch_size": 9},
        "autofill failed for model '{name}': configuration specified max-batch 9 but the model only supports "
        "max-batch 3",
    ),
    "variable_short": ("variable", tensors([3]), DIMS % ("X", 2, "[-1,3]", 1, "[3]")),
    "variable_datatype": (
        "variable",
        {"max_batch_size": 4} | tensors([3], "TYPE_INT32"),
        "unable to load model '{name}', configuration expects datatype TYPE_INT32 for input 'X', model "
        "provides TYPE_FP32",
    ),
    "script_alone": (
        "script",
        {"backend": "pytorch"},
        "model configuration must contain at least one input, none were specified.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(exported, scripted):
    row = torch.ones(2, 3)
    batch = {0: Dim("batch")}
    script = {"model.pt": scripted(Plain())}

    def one(*arguments, **more):
        return {"model.pt2": exported(*arguments, **more)}

    return {
        "fixed": one(Negative(), (torch.ones(1, 3),)),
        "variable": one(Negative(), (row,), shapes=(batch,)),
        "bounded": one(Negative(), (row,), shapes=({0: Dim("batch", max=3)},)),
        "free": one(Negative(), (row,), shapes=(batch | {1: Dim("width")},)),
        "rows": one(Negative(), (torch.ones(2),), shapes=(batch,)),
        "scalar": one(Negative(), (torch.tensor(1.0),)),
        "half_fixed": one(Sums(), (row,), shapes=(batch,)),
        "script": script,
        "traced": {"model.pt": scripted(Plain(), torch.ones(1, 3))},
    }


@pytest.fixture(scope="module")
def write_model(files):
    def write(root, name, file, config=None):
        return ModelRepository(root).model(name, config, files[file])

    return write


class TestStrictness(BatchSizeStrictness, backend="pytorch", loads=LOADS, refusals=REFUSALS):
    pass


@pytest.mark.parametrize("size", [16, 1])
def test_a_program_that_bounds_its_batches_bounds_the_default_size(tmp_path, files, size):
    ModelRepository(tmp_path).model("bounded", None, files["bounded"])
    settings = (("", "default-max-batch-size", str(size)),)

    with Server(quiet_options(tmp_path, backend_config=settings)) as server:
        assert config_of(server, "bounded")["max_batch_size"] == min(size, 3)
