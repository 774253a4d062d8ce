"""PyTorch as it is installed, and arguments on their way to a device."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import tritonpy_backend_pytorch as backend  # noqa: E402
from tritonpy.plugin import Backend, Unavailable  # noqa: E402
from tritonpy_backend_pytorch.instance import _onto  # noqa: E402


def test_all_tensors_of_a_call_are_moved_and_nothing_else():
    tensor = torch.ones(2)  # `meta` stands for a GPU; tensors there have no memory

    args, kwargs = _onto("meta", lambda feeds: ([tensor, 3, ["text"]], {"parts": {"a": [tensor]}}))(
        {"x": np.ones(1)}
    )

    assert (args[0].device.type, args[1:]) == ("meta", [3, ["text"]])
    assert kwargs["parts"]["a"][0].device.type == "meta"
    assert tensor.device.type == "cpu"


@pytest.mark.parametrize("installed", ["2.12.1", "1.13.0+cu117"])
def test_a_pytorch_that_is_too_old_is_told(monkeypatch, installed):
    monkeypatch.setattr(backend, "version", lambda name: installed)

    with pytest.raises(Unavailable, match=f"needs PyTorch 2.13 or newer, {installed.split('+')[0]}"):
        backend.backend_initialize(Backend("pytorch"))
