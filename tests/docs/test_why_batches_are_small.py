"""What the page on small batches shows is what a server and `corectl explain` show."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tritonpy.scheduler.decision import Closed
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parents[2] / "docs/how-to/why-batches-are-small.md").read_text()
[CONFIG] = re.findall(r"```protobuf\n# models/digits/config.pbtxt\n(.*?)```", PAGE, re.DOTALL)
[SHOWN] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


def run(command: str, server: Any) -> str:
    program, *arguments = shlex.split(command)
    line = [str(Path(sys.executable).with_name(program)), *arguments]
    line += ["--url", f"localhost:{server.ports['HTTPService']}"]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def without_times(text: str) -> list[str]:
    """Lines in which no number of seconds, rates and microseconds is left."""
    text = re.sub(r"[\d.e-]+ (seconds|µs|in a second|requests come)", r"N \1", text)
    return [line for line in re.sub(r"busy \d+%", "busy N%", text).splitlines() if line]


def test_the_commands_of_the_page_show_what_it_shows(served: Callable[..., Any], tmp_path: Path) -> None:
    serve, infer, explain = COMMANDS
    assert serve == "corectl serve --model-repository models"
    ModelRepository(tmp_path).model("digits", CONFIG)
    server = served("--model-repository", str(tmp_path))

    run(infer, server)
    shown = run(explain, server)

    assert without_times(shown) == without_times(SHOWN)
    options = set(re.findall(r"`(--[\w-]+)(?:=\d+)?`", PAGE)) - {"--http-restricted-api"}
    assert options == {"--seconds", "--json", "--model-version"}
    run(f"{explain} --seconds=0.01 --json --model-version=1", server)


def test_every_reason_is_explained() -> None:
    reasons = re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE)

    assert sorted(reasons) == sorted(reason.value for reason in Closed)


def test_the_call_is_where_the_page_says(served: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("digits", CONFIG)
    server = served("--model-repository", str(tmp_path))
    [path] = re.findall(r"`GET (/v2/\S+)`", PAGE)
    url = f"http://127.0.0.1:{server.ports['HTTPService']}{path.replace('<name>', 'digits')}"

    with urlopen(url, timeout=30) as answer:
        [version] = json.load(answer)["models"]

    assert version["name"] == "digits"


def test_the_queries_of_the_page_name_what_the_reference_lists() -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    [queries] = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)

    names = re.findall(r"\b((?:nv|tritonpy)_\w+)", queries)
    assert len(names) == 3
    assert [name for name in names if f"| `{name}` |" not in reference] == []
