"""The source of the models in `tests/models`; `python make_models.py` writes them anew."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import List, Tuple  # noqa: UP035  # TorchScript reads these

import torch
from torch.export import Dim
from tritonpy_sdk import ModelRepository


class Affine(torch.nn.Module):
    """A batch dimension, one of any size, two outputs, no configuration."""

    def forward(self, X):
        return {"DOUBLED": X + X, "SUM": X.sum(1, keepdim=True)}


class Fixed(torch.nn.Module):
    """No batch dimension, a scalar output."""

    def forward(self, X, Y):
        return {"Z": (X * Y).sum()}


class Bits(torch.nn.Module):
    def forward(self, X, B):
        return {"Y": X * 1, "NOT_B": ~B}


class Half(torch.nn.Module):
    def forward(self, X, *, parts):
        return -X, {"V": parts[0] + 1}


class Strings(torch.nn.Module):
    def forward(self, text: List[str], i: torch.Tensor) -> Tuple[List[str], torch.Tensor]:  # noqa: UP006
        return text, i + i


def exported(module, args, kwargs=None, shapes=None):
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module.eval(), args, kwargs, dynamic_shapes=shapes), buffer)
    return {"model.pt2": buffer.getvalue()}


def scripted(module):
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.script(module.eval()), buffer)
    return {"model.pt": buffer.getvalue()}


SOURCE = '''"""A model as it is written; its weights are in model.pt."""

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
'''


def weights():
    buffer = io.BytesIO()
    torch.save({"linear.weight": torch.arange(12.0).reshape(3, 4), "linear.bias": torch.ones(3)}, buffer)
    return buffer.getvalue()


def tensor(name, datatype, dims):
    return {"name": name, "data_type": datatype, "dims": dims}


def main() -> None:
    """Write all models."""
    repository = ModelRepository(Path(__file__).parent / "models")
    batch = {0: Dim("batch", max=64)}
    repository.model(
        "affine", None, exported(Affine(), (torch.ones(2, 3),), shapes=(batch | {1: Dim("width")},))
    )
    repository.model(
        "fixed", None, exported(Fixed(), (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int32)))
    )
    bits = torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(2, 2, dtype=torch.bool)
    repository.model("bfloat16", None, exported(Bits(), bits, shapes=(batch, batch)))
    half = torch.ones(2, 3, dtype=torch.float16)
    parts = {"parts": [torch.ones(2, 3, dtype=torch.uint8)]}
    repository.model("half", None, exported(Half(), (half,), parts, {"X": batch, "parts": [batch]}))
    repository.model(
        "strings",
        {
            "backend": "pytorch",
            "max_batch_size": 4,
            "input": [tensor("TEXT__0", "TYPE_STRING", [1]), tensor("I__1", "TYPE_INT64", [2])],
            "output": [tensor("SAME__0", "TYPE_STRING", [1]), tensor("J__1", "TYPE_INT64", [2])],
        },
        scripted(Strings()),
    )
    repository.model(
        "linear",
        {
            "platform": "pytorch_libtorch",
            "max_batch_size": 8,
            "input": [tensor("INPUT__0", "TYPE_FP32", [4])],
            "output": [tensor("OUTPUT__0", "TYPE_FP32", [3])],
            "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        },
        scripted(torch.nn.Linear(4, 3)),
    )
    repository.model(
        "source",
        {
            "backend": "pytorch",
            "runtime": "model.py",
            "max_batch_size": 8,
            "input": [tensor("x", "TYPE_FP32", [4])],
            "output": [tensor("y", "TYPE_FP32", [3])],
        },
        {"model.py": SOURCE, "model.pt": weights()},
    )


if __name__ == "__main__":
    main()
