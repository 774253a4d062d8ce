"""What the page on custom operators shows works: those of one model, of all models, and of a package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("torch")

PAGE = (Path(__file__).parents[2] / "docs/how-to/custom-operators.md").read_text()
FILES = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All files of the page, its package as pip would install it, and the models saved."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    [(name, module)] = project["entry-points"]["tritonpy.op_libraries"].items()
    info = tmp_path / f"{module}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text(f"[tritonpy.op_libraries]\n{name} = {module}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # By another process: in this one nothing would have to open the libraries any more.
    subprocess.run([sys.executable, "-W", "ignore", "save.py"], check=True)
    return tmp_path


def infer(port: int, model: str) -> Any:
    tensor = {"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 5, 7]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urlopen(f"http://127.0.0.1:{port}/v2/models/{model}/infer", body, timeout=60) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


@pytest.mark.stress  # PyTorch is imported by four processes
def test_models_find_their_operators(folder: Path, served: Callable[..., Any]) -> None:
    _, command = re.findall(
        r"^\$ corectl serve (.*)$", PAGE, re.MULTILINE
    )  # the first: what `corectl new` makes

    server = served(*command.replace("--model-repository ", "--model-repository=").split())

    port = server.ports["HTTPService"]
    answers = {model: infer(port, model) for model in ("tripled", "doubled", "squared")}
    assert answers == {"tripled": [3, 15, 21], "doubled": [2, 10, 14], "squared": [1, 25, 49]}
