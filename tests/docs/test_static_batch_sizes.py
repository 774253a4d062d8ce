"""What the page on static batch sizes shows works: its configuration, its request, the numbers it tells."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/static-batch-sizes.md").read_text()
(CONFIG,) = re.findall(r"```protobuf\n(.*?)```", PAGE, re.DOTALL)
INFER, STATISTICS = re.findall(r"^\$ (curl .*)$", PAGE, re.MULTILINE)
(ENGINE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_request_of_the_page_is_executed_with_four_rows_and_answered_with_three(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).python("engine", ENGINE, CONFIG)
    server = served(f"--model-repository={tmp_path}")

    def run(command: str) -> Any:
        command = command.replace("localhost:8000", f"localhost:{server.ports['HTTPService']}")
        return json.loads(subprocess.run(shlex.split(command), capture_output=True, check=True).stdout)

    (output,) = run(INFER)["outputs"]
    (statistics,) = run(STATISTICS)["model_stats"]

    assert (output["shape"], output["data"]) == ([3, 2], [2, 3, 4, 5, 6, 7])
    assert (statistics["inference_count"], statistics["execution_count"]) == (3, 1)
    assert [each["batch_size"] for each in statistics["batch_stats"]] == [4]
