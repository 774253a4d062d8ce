"""What the page on sequences shows works: its model, its client, its commands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/serve-stateful-models.md").read_text()
MODEL, CLIENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(CONFIG,) = re.findall(r"```protobuf\n(.*?)```", PAGE, re.DOTALL)
CURLS = re.findall(r"^\$ (curl .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def address(served: Callable[..., Any], tmp_path: Path) -> str:
    """Where the page's model is served."""
    ModelRepository(tmp_path).python("sums", MODEL, CONFIG)
    server = served(f"--model-repository={tmp_path}")
    return f"localhost:{server.ports['HTTPService']}"


def test_the_model_adds_up_what_the_client_sends(address: str) -> None:
    code = CLIENT.replace("localhost:8000", address)
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert printed.split() == ["1", "21", "321"]
    assert "It prints 1, 21 and 321." in PAGE


def test_the_commands_do_the_same(address: str) -> None:
    sums = []
    for command in CURLS:
        words = shlex.split(command.replace("localhost:8000", address))
        printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        sums.append(json.loads(printed)["outputs"][0]["data"])

    assert sums == [[5], [11]]
