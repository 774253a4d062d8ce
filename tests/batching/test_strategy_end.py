"""Strategies that do not return when they are to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.lifecycle.loading import version_load
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

WAITS = """
import os
import time
from tritonpy.plugin import hookimpl

@hookimpl
def model_batcher_initialize(model):
    return model

@hookimpl
def model_batcher_finalize(batcher):
    while not os.path.exists({end!r}):
        time.sleep(0.005)

@hookimpl
def model_batch_initialize(batcher):
    return None

@hookimpl
def model_batch_include_request(request, batch):
    return True

@hookimpl
def model_batch_finalize(batch):
    pass
"""


def test_a_server_ends_although_a_strategy_does_not(
    serve: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(version_load, "_PATIENCE_S", 0.1)
    end = tmp_path / "end"
    models = ModelRepository(tmp_path / "models")
    config = {"backend": "identity", "max_batch_size": 4, "dynamic_batching": {}}
    models.model("m", config, {"batchstrategy.py": WAITS.format(end=str(end))})
    server = serve(models.path)

    server.stop()
    end.touch()

    assert "of model 'm' has not ended after 0.1 s; it is left alone" in caplog.text
