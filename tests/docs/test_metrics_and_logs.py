"""What the page on metrics and logs shows is what the server shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/metrics-and-logs.md").read_text()
[MODEL] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
METRICS, LINES = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


def run(command: str, server: Any) -> str:
    """Run a `corectl` of the page; what it prints."""
    program, *arguments = shlex.split(command)
    url = f"localhost:{server.ports['HTTPService']}"
    line = [str(Path(sys.executable).with_name(program)), *arguments, "--url", url]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def infer_text(server: Any, request_id: str, text: str) -> None:
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [text]}
    body = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
    port = server.ports["HTTPService"]
    with urlopen(f"http://127.0.0.1:{port}/v2/models/shout/infer", body, timeout=10) as answer:
        assert answer.status == 200


def metrics_page(server: Any) -> str:
    with urlopen(f"http://127.0.0.1:{server.ports['Metrics Service']}/metrics", timeout=10) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


def without_what_differs(line: str) -> str:
    """A log line without its time and process id."""
    return re.sub(r"^(.)\d{4} \S+ \d+ ", r"\1 ", line)


def test_the_model_of_the_page_counts_and_prints_as_the_page_says(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path / "models").python("shout", MODEL, 'backend: "python"')
    serve, infer, curl, *_ = COMMANDS
    assert serve == "corectl serve --model-repository models"
    assert curl == "curl localhost:8002/metrics"
    server = corectl("--model-repository", str(tmp_path / "models"))

    assert "HOW LOUD IS THIS?" in run(infer, server)
    page = metrics_page(server)
    infer_text(server, "r1", "how loud is this?")
    infer_text(server, "r2", "")

    assert METRICS in page
    families = {family.name: family.type for family in text_string_to_metric_families(page)}
    named = set(re.findall(r"^\| `(tritonpy_\w+)`", PAGE, re.MULTILINE))
    assert {name.removesuffix("_total") for name in named - {"tritonpy_unanswered_requests_total"}} <= {
        *families,
        "tritonpy_worker_restarts",
    }
    until = time.monotonic() + 10
    expected = {without_what_differs(line) for line in LINES.splitlines()}
    while not expected <= {without_what_differs(line) for line in server.log.splitlines()}:
        assert time.monotonic() < until, server.log
        time.sleep(0.02)
    assert '"ready to shout" model=shout version=1 instance=shout_0' in server.log


def test_the_page_serves_with_options_that_there_are(corectl: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path / "models").python("shout", MODEL, 'backend: "python"')
    settings = re.findall(r"--backend-config=\S+?(?=[`\s])", PAGE)
    assert len(settings) == 3

    server = corectl("--model-repository", str(tmp_path / "models"), *settings)

    assert "there is no such setting" not in server.log
    assert server.stop() == 0
