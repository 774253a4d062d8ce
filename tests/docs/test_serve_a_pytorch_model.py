"""What the pages on PyTorch models show works: their scripts, their requests, the answers they tell."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import warnings
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


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a script of a page in `tmp_path`, in this process, which has PyTorch; return what it prints."""

    def start(script: str, *arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["script.py", *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as a script has it, of the modules that it imports
            exec(compile(script, "script.py", "exec"), {"__name__": "__main__"})
        return capsys.readouterr().out

    return start


def test_a_module_is_exported_served_and_asked(
    served: Callable[..., Any], run: Callable[..., str], tmp_path: Path
) -> None:
    page = "serve-a-pytorch-model.md"
    scripts = blocks(page, "python")
    run(scripts["export.py"])
    run(scripts["save.py"])
    server = served(
        f"--model-repository={tmp_path}/models", "--model-control-mode=explicit", "--load-model=*"
    )
    url = f"localhost:{server.ports['HTTPService']}"

    assert run(scripts["ask.py"], url) == "(3, 1) (3, 10)\n"
    config = curl(f"curl {url}/v2/models/digits/config")
    assert config["max_batch_size"] == 4
    assert "dynamic_batching" in config
    tensors = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]},
        {"name": "power", "datatype": "INT32", "shape": [1, 1], "data": [2]},
    ]
    body = shlex.quote(json.dumps({"inputs": tensors}))
    (output,) = curl(f"curl {url}/v2/models/plain/infer --data {body}")["outputs"]
    assert output["data"] == [9, 18]

    for name, text in blocks(page, "protobuf").items():
        (tmp_path / name).write_text(text)
    subprocess.run(["curl", "-sf", "-X", "POST", f"{url}/v2/repository/models/digits/load"], check=True)

    assert run(scripts["ask.py"], url) == "(3, 1) (3, 10)\n"
    config = curl(f"curl {url}/v2/models/digits/config")
    assert config["max_batch_size"] == 32
    assert "dynamic_batching" in config


def test_a_model_moves_from_torchscript_to_export_with_its_configuration(
    served: Callable[..., Any], run: Callable[..., str], tmp_path: Path
) -> None:
    page = "from-torchscript-to-export.md"
    run(blocks(page, "python")["move.py"])
    commands = re.findall(r"^\$ (curl .*)$", (HOW_TO / page).read_text(), re.MULTILINE)
    server = served(f"--model-repository={tmp_path}/models")
    url = f"localhost:{server.ports['HTTPService']}"

    old, new = (curl(command.replace("localhost:8000", url))["outputs"][0]["data"] for command in commands)

    assert new == pytest.approx(old, rel=1e-5)
    assert sum(new) == pytest.approx(1)


def curl(command: str) -> Any:
    """Run a command of a page and read what it prints."""
    return json.loads(subprocess.run(shlex.split(command), capture_output=True, check=True).stdout)
