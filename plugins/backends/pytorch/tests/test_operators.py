"""Custom operators are there before the model that calls them is loaded."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tritonpy.plugin import TritonError
from tritonpy_sdk import ModelRepository

torch = pytest.importorskip("torch")

OPERATOR = """
import torch

library = torch.library.Library("tritonpy_tests", "DEF")
library.define("triple(Tensor x) -> Tensor")
library.impl("triple", lambda x: x * 3, "CompositeExplicitAutograd")
torch.tritonpy_tests_library = library  # an operator lives as long as this
"""

# Saved by another process: where the operator is known already, nothing would have to open it.
SAVE = (
    OPERATOR
    + """
import sys

class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tritonpy_tests.triple(x)

torch.jit.trace(Net(), torch.ones(2)).save(sys.argv[1])
"""
)


def config(*libraries):
    return {
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]}],
        "model_operations": {"op_library_filename": list(libraries)},
    }


def test_a_model_finds_the_operators_of_its_libraries(tmp_path, load, ask):
    subprocess.run([sys.executable, "-W", "ignore", "-c", SAVE, str(tmp_path / "model.pt")], check=True)
    file = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").unlink()

    with pytest.raises(TritonError, match="tritonpy_tests::triple"):
        load(file, config(), name="without")
    ModelRepository(tmp_path).model("net", None, model_files={"operators/triple.py": OPERATOR})
    for _ in range(2):  # the second time they are there already
        model = load(file, config("operators/triple.py"))
        assert ask(model, x=np.ones(2, "f4")) == {"Y": [3, 3]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "nosuch.so",
            None,
            "unable to find '.*/net/nosuch.so', which 'op_library_filename' of",
        ),
        ("bad.so", "text", "custom operators of 'bad.so': OSError: .*bad.so"),
        ("bad.py", "1/0", "custom operators of 'bad.py': ZeroDivisionError"),
    ],
)
def test_a_library_that_cannot_be_opened_is_told(tmp_path, load, scripted, name, content, message):
    if content is not None:
        ModelRepository(tmp_path).model("net", None, model_files={name: content})

    with pytest.raises(TritonError, match=message):
        load(scripted(torch.nn.Identity()), config(name))
