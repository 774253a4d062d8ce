"""What the log of a server says about loads: Triton's own lines, and how long each step took."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.lifecycle.loading import loader, version_load
from tritonpy_sdk.repository import ModelRepository

# Each instance begins until the log has told so.
SLOW = """
import os
import time

class TritonPythonModel:
    def initialize(self, args):
        number = int(args["model_instance_name"].rpartition("_")[2]) + 1
        while not os.path.exists(f"FOLDER/told {number}"):
            time.sleep(0.01)

    def execute(self, requests):
        return []
"""


def test_a_slow_load_is_told_while_it_goes_on_and_tritons_lines_stay(
    serve: Callable[..., Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ModelRepository(tmp_path / "models").python(
        "slow",
        SLOW.replace("FOLDER", str(tmp_path)),
        {"backend": "python", "instance_group": [{"kind": "KIND_CPU", "count": 2}]},
    )

    def note(record: logging.LogRecord) -> bool:
        if found := re.search(r"now in initialize \(instance (\d) of 2\)", record.getMessage()):
            (tmp_path / f"told {found[1]}").touch()
        return True

    settings = loader.LoaderSettings
    monkeypatch.setenv(version_load.PARALLEL_VARIABLE, "0")
    monkeypatch.setattr(
        "tritonpy.runtime.LoaderSettings",
        lambda *given, **named: settings(*given, **{**named, "progress_interval_s": 0.25}),
    )
    caplog.handler.addFilter(note)
    try:
        with caplog.at_level(logging.INFO, "tritonpy.repository"):
            serve(tmp_path / "models")
    finally:
        caplog.handler.removeFilter(note)  # the handler is that of later tests, too

    lines = [record.getMessage() for record in caplog.records]
    started, loaded = lines.index("loading: slow:1"), lines.index("successfully loaded 'slow' version 1")
    between = "\n".join(lines[started:loaded])
    assert re.search(r"loading: slow:1 for \d+ s, now in initialize \(instance 1 of 2\)", between)
    assert re.search(r"loading: slow:1 for \d+ s, now in initialize \(instance 2 of 2\)", between)
    took = re.search(r"loading: slow:1 took ([\d.]+) s \((.+)\)", between)
    assert took
    assert float(took[1]) >= 0.5
    assert [part.rsplit(" ", 2)[0] for part in took[2].split(", ")] == [
        "start of the backend",
        "auto-complete",
        "initialize",
        "batching strategy",
    ]


def test_a_load_that_fails_says_in_which_step_and_after_how_long(
    serve: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ModelRepository(tmp_path).python("broken", SLOW.replace("time.sleep", "broken"), {"backend": "python"})
    with caplog.at_level(logging.INFO, "tritonpy.repository"):
        serve(tmp_path, exit_on_error=False)

    text = caplog.text
    assert re.search(r"loading: broken:1 failed after [\d.]+ s, in initialize \(instance 1 of 1\)", text)
    assert "failed to load 'broken' version 1: " in text
