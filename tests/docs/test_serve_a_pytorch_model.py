"""What the pages on PyTorch models show works: their scripts, their requests, the answers they tell."""

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

pytest.importorskip("torch")

HOW_TO = Path(__file__).parent.parent.parent / "docs/how-to"


def blocks(page: str, language: str) -> dict[str, str]:
    """The examples of a page by the file names in their first lines."""
    text = (HOW_TO / page).read_text()
    found = re.findall(rf"```{language}\n# (\S+)\n(.*?)```", text, re.DOTALL)
    return dict(found)


def run(script: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("has_config", [False, True])
def test_a_module_is_exported_served_and_asked(
    served: Callable[..., Any], tmp_path: Path, has_config: bool
) -> None:
    page = "serve-a-pytorch-model.md"
    scripts = blocks(page, "python")
    run(scripts["export.py"], tmp_path)
    if has_config:
        for name, text in blocks(page, "protobuf").items():
            (tmp_path / name).write_text(text)
    else:
        run(scripts["save.py"], tmp_path)
    server = served(f"--model-repository={tmp_path}/models")
    url = f"localhost:{server.ports['HTTPService']}"

    assert run(scripts["ask.py"], tmp_path, url) == "(3, 1) (3, 10)\n"
    config = curl(f"curl {url}/v2/models/digits/config")
    assert config["max_batch_size"] == (32 if has_config else 4)
    assert "dynamic_batching" in config
    if not has_config:
        tensors = [
            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]},
            {"name": "power", "datatype": "INT32", "shape": [1, 1], "data": [2]},
        ]
        body = shlex.quote(json.dumps({"inputs": tensors}))
        (output,) = curl(f"curl {url}/v2/models/plain/infer --data {body}")["outputs"]
        assert output["data"] == [9, 18]


def test_a_model_moves_from_torchscript_to_export_with_its_configuration(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    page = "from-torchscript-to-export.md"
    run(blocks(page, "python")["move.py"], tmp_path)
    commands = re.findall(r"^\$ (curl .*)$", (HOW_TO / page).read_text(), re.MULTILINE)
    server = served(f"--model-repository={tmp_path}/models")
    url = f"localhost:{server.ports['HTTPService']}"

    old, new = (curl(command.replace("localhost:8000", url))["outputs"][0]["data"] for command in commands)

    assert new == pytest.approx(old, rel=1e-5)
    assert sum(new) == pytest.approx(1)


def curl(command: str) -> Any:
    """Run a command of a page and read what it prints."""
    return json.loads(subprocess.run(shlex.split(command), capture_output=True, check=True).stdout)
