"""The tutorial leads from an empty folder to an answer, by what stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..shell import run

PAGE = (Path(__file__).parents[2] / "docs/tutorial/first-model.md").read_text()
FILES = dict(re.findall(r"```\w+\n# (models/\S+)\n(.*?)```", PAGE, re.DOTALL))
SERVE, *COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


@pytest.mark.timeout(240)  # it starts seven programs, which a busy machine takes its time for
def test_each_command_of_the_tutorial_does_what_it_says(served: Callable[..., Any], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert SERVE == "corectl serve --model-repository models"
    server = served("--model-repository", str(tmp_path / "models"))
    http, metrics = (f"localhost:{server.ports[name]}" for name in ("HTTPService", "Metrics Service"))

    said = []
    for command in COMMANDS:
        line = command.replace("localhost:8000", http).replace("localhost:8002", metrics)
        said.append(run(f"{line} --url {http}" if line.startswith("corectl ") else line, tmp_path))

    models, shown, answer, refusal, statistics, page = said
    assert re.search(r"doubler +1 +READY", models)
    assert re.search(r"\b2\D+4\D+6\D+8\b", shown)
    assert '"data":[2.0,4.0,6.0,8.0]' in answer
    assert "got [1,3]" in refusal
    assert '"inference_count":2,"execution_count":2' in statistics
    assert 'nv_inference_count{model="doubler",version="1"} 2' in page
