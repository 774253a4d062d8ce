"""What the page on implicit state shows works: its model, its client, its file, and its Python model."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/implicit-state.md").read_text()
CONFIG, INITIAL = re.findall(r"```protobuf\n(.*?)```", PAGE, re.DOTALL)
MAKE, ASK, PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SUMS = [float(number) for number in re.findall(r"# (1\.0), (21\.0), (321\.0)", PAGE)[0]]


def answers(serve: Callable[..., Any], folder: Path) -> list[float]:
    """What the client of the page prints."""
    server = serve(folder / "models")
    code = ASK.replace("localhost:8000", f"127.0.0.1:{server.http_port}")
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return [float(line) for line in result.stdout.split()]


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    """The ONNX model of the page."""
    subprocess.run([sys.executable, "-c", MAKE], cwd=tmp_path, check=True, timeout=60)
    repository = ModelRepository(tmp_path / "models")
    repository.model("sums", CONFIG)
    return repository


@pytest.mark.usefixtures("repository")
def test_the_sums_of_the_page_are_right(serve: Callable[..., Any], tmp_path: Path) -> None:
    assert answers(serve, tmp_path) == SUMS


def test_a_sequence_begins_with_what_the_file_says(
    serve: Callable[..., Any], tmp_path: Path, repository: ModelRepository
) -> None:
    config = CONFIG.replace("      dims: [ 1 ]\n", f"      dims: [ 1 ]\n{INITIAL}")
    hundred = np.array([100], np.float32).tobytes()
    repository.model("sums", config, model_files={"initial_state/hundred": hundred})

    assert answers(serve, tmp_path) == [100 + total for total in SUMS]


def test_the_python_model_of_the_page_does_the_same(serve: Callable[..., Any], tmp_path: Path) -> None:
    config = CONFIG.replace("onnxruntime", "python")
    ModelRepository(tmp_path / "models").python("sums", PYTHON, config)

    assert answers(serve, tmp_path) == SUMS
