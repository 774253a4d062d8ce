"""PyTorch as it is installed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import tritonpy_backend_pytorch as backend  # noqa: E402
from tritonpy.plugin import Backend, Unavailable  # noqa: E402


@pytest.mark.parametrize("installed", ["2.12.1", "1.13.0+cu117"])
def test_a_pytorch_that_is_too_old_is_told(monkeypatch, installed):
    monkeypatch.setattr(backend, "version", lambda name: installed)

    with pytest.raises(Unavailable, match=f"needs PyTorch 2.13 or newer, {installed.split('+')[0]}"):
        backend.backend_initialize(Backend("pytorch"))
