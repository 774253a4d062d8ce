"""Arguments on their way to a device: the device `meta` stands for a GPU, tensors there have no memory."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from tritonpy_backend_pytorch.instance import _onto  # noqa: E402


def test_all_tensors_of_a_call_are_moved_and_nothing_else():
    tensor = torch.ones(2)

    args, kwargs = _onto("meta", lambda feeds: ([tensor, 3, ["text"]], {"parts": {"a": [tensor]}}))(
        {"x": np.ones(1)}
    )

    assert (args[0].device.type, args[1:]) == ("meta", [3, ["text"]])
    assert kwargs["parts"]["a"][0].device.type == "meta"
    assert tensor.device.type == "cpu"
