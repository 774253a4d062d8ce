"""What the page on measuring shows is what `corectl bench` shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

PAGE = (Path(__file__).parents[2] / "docs/how-to/measure-a-model.md").read_text()
[CONFIG] = re.findall(r"```protobuf\n# models/scores/config.pbtxt\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
[DATA] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
[PROGRAM] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (corectl bench .*)$", PAGE, re.MULTILINE)
SHORT = ("--measurement-interval", "100", "--max-trials", "3")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """It serves the model of the page."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.model("scores", CONFIG)
    with ServerProcess("--model-repository", repository.path) as process:
        yield process


def run(command: str, server: ServerProcess, folder: Path, *more: str) -> str:
    program, *arguments = shlex.split(command)
    line = [str(Path(sys.executable).with_name(program)), *arguments, *more]
    line += ["--url", f"localhost:{server.http_port}"]
    return subprocess.run(line, capture_output=True, text=True, timeout=100, check=True, cwd=folder).stdout


def shape(text: str) -> list[str]:
    """Lines without what differs from one time to the next."""
    lines = []
    for line in text.splitlines():
        line = line.replace("localhost:8000", "HERE")
        line = re.sub(r"localhost:\d+", "HERE", line)
        if "executions of" in line or "batches closed" in line:
            line = re.sub(r":.*", ":", line)
        if line.lstrip().startswith(("not stable", "300 requests")) or "were answered in a second" in line:
            continue  # of a busy machine
        line = re.sub(r"\b(yes|no)$", "", line)
        name, _, rest = (
            line.partition("  ") if re.match(r"(concurrency|rate) \S+  ", line) else ("", "", line)
        )
        lines.append(name + " ".join(re.sub(r"\d+(\.\d+)?", "N", rest).split()))
    return lines


@pytest.mark.parametrize("number", [0, 1])
def test_the_commands_of_the_page_show_what_it_shows(
    server: ServerProcess, tmp_path: Path, number: int
) -> None:
    shown = run(COMMANDS[number], server, tmp_path, *SHORT)

    assert shape(shown) == shape(SHOWN[number])


def test_the_reports_of_the_page_are_written(server: ServerProcess, tmp_path: Path) -> None:
    run(COMMANDS[2], server, tmp_path, "--request-count", "4")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "table.csv"]


def test_the_data_of_the_page_is_taken(server: ServerProcess, tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(DATA)

    out = run(f"corectl bench scores --json --input-data {data}", server, tmp_path, "--request-count", "4")

    assert json.loads(out)[0]["errors"] == {}


def test_the_program_of_the_page_runs(server: ServerProcess, tmp_path: Path) -> None:
    program = PROGRAM.replace("localhost:8000", f"localhost:{server.http_port}").replace(
        "window_s=1", "window_s=0.2, most_windows=3"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    rate, latency_us, errors = done.stdout.split()
    assert float(rate) > 0
    assert float(latency_us) > 5000
    assert errors == "0"


def test_the_options_of_the_page_are_options() -> None:
    from tritonpy_bench.cli import bench

    known = {word for parameter in bench.params for word in parameter.opts}
    page = PAGE.partition("## Beside perf_analyzer")[0]
    told = set(re.findall(r"`(--[\w-]+)[ =`]", page)) | set(re.findall(r" (--[\w-]+)`", page))

    assert told - {"--allow-client-shm"} <= known
    assert len(told) > 15
