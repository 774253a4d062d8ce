"""What the page on controlling models shows works, command by command, in the order it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

pytestmark = pytest.mark.timeout(180)  # each command is a process of its own

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/control-models.md").read_text()
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

LETTERS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "COUNT", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        count = np.array([len(element) for element in text.flat], np.int32).reshape(text.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("COUNT", count)])
"""


def run(command: str, server: Any, folder: Path) -> str:
    """Run a command of the page against a server; what it prints."""
    scripts = Path(sys.executable).parent
    http = f"localhost:{server.ports['HTTPService']}"
    line = command.replace("localhost:8000", http)
    if line.startswith("corectl "):
        line = f"{scripts / line} --url {http}"
    result = subprocess.run(
        line.replace("curl ", "curl --silent --show-error --fail-with-body "),
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "no_proxy": "*"},
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def arguments(command: str, folder: Path) -> list[str]:
    """The options that the page serves with, for a repository in `folder`."""
    options = shlex.split(command)[2:]
    options[options.index("models")] = str(folder / "models")
    return options


def test_every_command_does_what_the_page_says(served: Callable[..., Any], tmp_path: Path) -> None:
    models = ModelRepository(tmp_path / "models")
    models.python("letters", LETTERS, 'backend: "python"')
    inside = "".join(f"        {line}\n" for line in CODE[0].splitlines()[2:])
    sentences = LETTERS.replace("        text =", f"{inside}        text =")
    models.python("sentences", sentences, 'backend: "python"')
    server = served(*arguments(COMMANDS[0], tmp_path))
    output = {command: run(command, server, tmp_path) for command in COMMANDS[1:] if "serve" not in command}

    rows = [line.split() for line in output["corectl models"].splitlines()]
    assert ["sentences", "1", "READY", "-"] in rows
    assert ["letters", "-", "-", "-"] in rows
    assert output["corectl models load letters"] == "loaded letters\n"
    assert output["corectl models unload letters"] == "unloaded letters\n"
    assert output["corectl models reload sentences"] == "reloaded sentences\n"
    assert [text for command, text in output.items() if " trial " in command] == ["loaded trial\n"]
    config = run("curl localhost:8000/v2/models/letters/config", server, tmp_path)
    assert '"max_batch_size":4' in config
    # The model that does what the page shows of `pb_utils`: unloads what is loaded.
    answer = run("corectl infer sentences --input TEXT=abc --json", server, tmp_path)
    assert "3" in answer
    assert "letters" not in run("corectl models index --ready", server, tmp_path)
    server.stop()


def test_the_page_serves_with_options_that_there_are(served: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path / "models").python("letters", LETTERS, 'backend: "python"')
    serving = [command for command in COMMANDS if command.startswith("corectl serve")]
    assert len(serving) == 3

    for command in serving[1:]:
        server = served(*arguments(command, tmp_path))

        assert "letters" in run("corectl models index --ready", server, tmp_path)
