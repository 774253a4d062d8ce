"""What the page on warmup shows works: its configuration, its file, and the numbers it tells."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/warm-up-a-model.md").read_text()
CONFIG = re.findall(r"```protobuf\n(.*?)```", PAGE, re.DOTALL)
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)

SCORES = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            pixels = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
            caption = pb_utils.get_input_tensor_by_name(request, "CAPTION").as_numpy()
            if len(requests) == 8 and (caption.tolist() != [[b"a cat on a wall"]] or not pixels.any()):
                raise ValueError(f"not what the page says: {caption}, {pixels}")
            score = np.zeros((1, 1), np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", score)]))
        return responses
"""


def write_models(folder: Path, source: str) -> None:
    """Do what the page does."""
    (config,) = CONFIG
    (code,) = CODE
    ModelRepository(folder / "models").python("scores", source, config)
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env={**os.environ})


def test_the_model_of_the_page_is_warmed_up_as_it_tells(served: Callable[..., Any], tmp_path: Path) -> None:
    write_models(tmp_path, SCORES)
    server = served(f"--model-repository={tmp_path / 'models'}")

    (command,) = COMMANDS
    command = command.replace("localhost:8000", f"localhost:{server.ports['HTTPService']}")
    answer = subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout

    (statistics,) = json.loads(answer)["model_stats"]
    assert (statistics["inference_count"], statistics["execution_count"]) == (50, 8)
    assert "`inference_count` is 50,\n`execution_count` 8" in PAGE


def test_a_warmup_that_fails_is_told_as_the_page_says(serve: Callable[..., Any], tmp_path: Path) -> None:
    write_models(tmp_path, SCORES.replace("a cat", "a dog"))
    server = serve(tmp_path / "models", model_control_mode="explicit")
    url = f"http://127.0.0.1:{server.http_port}/v2/repository/models/scores/load"
    answer = subprocess.run(
        ["curl", "--silent", "-X", "POST", url], capture_output=True, text=True, check=True
    )

    (told,) = re.findall(r"```text\n(.*?)…", PAGE, re.DOTALL)
    assert (
        json.loads(answer.stdout)["error"]
        .replace("scores_0_1", "scores_0_0")
        .startswith(told.replace("\n", " "))
    )
