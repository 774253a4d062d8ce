"""What the pages on batches, priorities and streams show works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs/how-to"


def serve_page(served: Callable[..., Any], folder: Path, page: str) -> Any:
    """Write the files that a page shows, each named in its first line, and serve its models."""
    text = (PAGES / page).read_text()
    for name, content in re.findall(r"```(?:protobuf|python)\n# (\S+)\n(.*?)```", text, re.DOTALL):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return served(f"--model-repository={ModelRepository(folder / 'models').path}")


def run(server: Any, folder: Path, command: str) -> str:
    """Run a command of the page and return what it prints."""
    command = command.replace("python ", f"{sys.executable} ")
    command = command.replace("localhost:8000", f"localhost:{server.ports['HTTPService']}")
    command = command.replace("localhost:8001", f"localhost:{server.ports['GRPCInferenceService']}")
    result = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown(page: str) -> list[tuple[str, str]]:
    """The commands of a page with what it says they print, without those that start a server."""
    text = (PAGES / page).read_text()
    blocks = re.findall(r"```console\n\$ (.*?)\n(.*?)```", text, re.DOTALL)
    return [(command, output) for command, output in blocks if not command.startswith("corectl serve")]


def test_requests_that_wait_become_batches(
    served: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "16")  # all are there, however slow their client is
    server = serve_page(served, tmp_path, "batch-requests.md")
    ((command, _),) = shown("batch-requests.md")

    rows, executions = map(int, re.findall(r"\d+", run(server, tmp_path, command)))

    assert rows == 16
    assert executions <= 5


def test_the_figures_are_those_that_were_measured() -> None:
    text = (PAGES / "batch-requests.md").read_text()
    name = re.findall(r"`(benchmarks/results/.*?)`", text)[0]
    ways = json.loads((ROOT / name).read_text())["ways"]
    for figures in ways.values():
        row = [f"{figures[key]:.0f}" for key in ("requests_per_s", "median_ms", "p99_ms")]
        assert f"| {' | '.join(row)} | {figures['rows_per_batch']} |" in text
    compared = (PAGES / "choose-a-scheduler.md").read_text()
    for way in ("default scheduler", "dynamic_batching {}"):
        assert f"{ways[way]['requests_per_s']:.0f}" in compared


def test_a_request_says_how_urgent_it_is(served: Callable[..., Any], tmp_path: Path) -> None:
    server = serve_page(served, tmp_path, "prioritize-requests.md")
    ((command, _),) = shown("prioritize-requests.md")

    answer = json.loads(run(server, tmp_path, command))
    refused = json.loads(run(server, tmp_path, command.replace('"priority": 1', '"priority": "1"')))

    assert answer["outputs"][0]["data"] == [1.0]
    assert refused["error"].startswith("Unable to parse 'priority'")


def test_responses_come_one_by_one_as_shown(served: Callable[..., Any], tmp_path: Path) -> None:
    server = serve_page(served, tmp_path, "stream-responses.md")
    for command, output in shown("stream-responses.md"):
        assert run(server, tmp_path, command) == output

    body = {"inputs": [{"name": "COUNT", "shape": [1], "datatype": "INT32", "data": [1]}]}
    url = f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/counter/infer"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, json.dumps(body).encode(), timeout=20)
    assert refused.value.code == 501
    refused.value.close()


def test_the_page_on_streams_tells_the_defaults() -> None:
    text = (PAGES / "stream-responses.md").read_text()
    options = (ROOT / "docs/reference/cli.md").read_text()
    for flag, default in re.findall(r"^\| `(--\S+)` \| (\d+) \|", text, re.MULTILINE):
        assert re.search(rf"^\| `{flag} \S+` \| `{default}` \|", options, re.MULTILINE)
