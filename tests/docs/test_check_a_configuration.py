"""What the page on checking configurations shows works, command by command, in the order it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

pytestmark = pytest.mark.timeout(180)  # each command is a process of its own

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/check-a-configuration.md").read_text()
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)

BROKEN = """\
backend: "python"
# how many texts at once
max_batch_size: -1
input [
  { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "LENGTH" data_type: TYPE_INT32 }
]
"""
SENTENCES = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return []
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Status and output of each command of the page."""
    folder = tmp_path_factory.mktemp("page")
    models = ModelRepository(folder / "models")
    models.python("letters", "", BROKEN)
    models.python("sentences", SENTENCES, 'backend: "python"\nmax_batch_size: 4\n')
    found = {}
    for command in COMMANDS:
        result = subprocess.run(
            [str(Path(sys.executable).with_name("corectl")), *command.split()[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found[command] = (result.returncode, result.stdout + result.stderr)
    found["cat sentences.json"] = (0, (folder / "sentences.json").read_text())
    return found


def test_every_command_does_what_the_page_says(outputs: dict[str, tuple[int, str]]) -> None:
    check, *others = COMMANDS
    assert len(others) == 4

    assert outputs[check] == (1, re.findall(r"\$ corectl config check models\n(.*?)```", PAGE, re.DOTALL)[0])
    assert [outputs[command][0] for command in others] == [0, 0, 0, 0]
    assert "name: TEXT" in outputs[others[0]][1]
    assert "TEXT" not in outputs[others[1]][1]
    assert outputs[others[2]][1] == "backend: python\nmax_batch_size: 4\n"
    assert json.loads(outputs["cat sentences.json"][1]) == {"backend": "python", "max_batch_size": 4}


def test_show_prints_what_a_server_answers(serve: Callable[..., Any], tmp_path: Path) -> None:
    model = ModelRepository(tmp_path).python("sentences", SENTENCES)
    server = serve(tmp_path)

    shown = subprocess.run(
        [str(Path(sys.executable).with_name("corectl")), "config", "show", str(model)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    assert json.loads(shown) == server.runtime.dataplane.find("sentences").config
