"""Outputs of a model of which only calls tell anything."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from tritonpy_backend_pytorch.outputs import describe_outputs  # noqa: E402
from tritonpy_backend_pytorch.tensor_info import TensorInfo  # noqa: E402

ANY = (0, -1)
X = TensorInfo("x", "FP32", (-1, -1), "", ((0, 64), (12, 40)), ("b", "4*s"))
Y = TensorInfo("y", "INT64", (-1, 3), "", (ANY, (3, 3)), ("b", ""))


def model(x, y):
    return {"pooled": x.reshape(len(x), 4, -1), "both": torch.cat([x, x]), "y": [y], "total": x.sum().half()}


def test_dimensions_that_change_with_a_size_of_an_input_are_that_size():
    found = describe_outputs(model, [X, Y], ["pooled", "both", "y", "total"])

    assert [(info.name, info.datatype, info.shape, info.symbols) for info in found] == [
        ("pooled", "FP32", (-1, 4, -1), ("b", "", "s")),
        ("both", "FP32", (-1, -1), ("?both_0", "?both_1")),
        ("y", "INT64", (-1, 3), ("b", "")),
        ("total", "FP16", (), ()),
    ]


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        ([TensorInfo("x", "FP32", (-1,), "", ((9, 3),), ("b",)), Y], ["one"]),
        ([X, Y], ["pooled", "both"]),
    ],
    ids=["no size fits", "other outputs"],
)
def test_what_does_not_fit_is_told(inputs, names):
    with pytest.raises(ValueError, match=r"no size 'b' fits all inputs|zip"):
        describe_outputs(model, inputs, names)
