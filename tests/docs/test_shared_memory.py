"""What the pages on shared memory and classification show works, in the order it stands there."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent.parent.parent / "docs/how-to"


class Page:
    """The blocks of a page."""

    def __init__(self, name: str) -> None:
        text = (PAGES / name).read_text()
        self.commands = [
            line
            for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE)
            if not line.startswith(("corectl serve", "pip install"))
        ]
        self.serving = shlex.split((re.findall(r"^\$ corectl serve (.*)$", text, re.MULTILINE) or [""])[0])
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.code = [block for kind, block in blocks if kind == "python"]
        self.plain = [block for kind, block in blocks if not kind]


def at(server: Any, text: str) -> str:
    """What a page says, for the ports of a server."""
    for port, service in (("8000", "HTTPService"), ("8001", "GRPCInferenceService")):
        text = text.replace(f"localhost:{port}", f"127.0.0.1:{server.ports[service]}")
    return text


def python(server: Any, code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", at(server, code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def curl(server: Any, command: str) -> Any:
    line = at(server, command).replace("curl ", "curl --silent --show-error --fail-with-body --noproxy '*' ")
    result = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return json.loads(result.stdout) if result.stdout else None


def write_model(folder: Path, name: str, config: str) -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(config)


def test_the_page_on_shared_memory(served: Callable[..., Any], tmp_path: Path) -> None:
    page = Page("shared-memory.md")
    write_model(tmp_path / "models", "echo", page.plain[0])
    options = page.serving
    options[options.index("models")] = str(tmp_path / "models")
    server = served(*options)
    # Names on the page are short; those of this test must not meet others on the same machine.
    unique = f"tritonpy_page_{os.getpid()}"
    (code,) = page.code

    assert python(server, code.replace('"/', f'"/{unique}_')) == "True\n"

    shared = Path("/dev/shm") / f"{unique}_source"
    shared.write_bytes(bytes(602112))
    try:
        commands = [command.replace('"/source"', f'"/{shared.name}"') for command in page.commands]
        answers = [curl(server, command) for command in commands]
    finally:
        shared.unlink()
    region = {"name": "source", "key": f"/{shared.name}", "offset": 0, "byte_size": 602112}
    assert answers == [None, [region], None]


def test_the_page_on_classification(served: Callable[..., Any], tmp_path: Path) -> None:
    page = Page("classification.md")
    config, answer, printed = page.plain
    write_model(tmp_path, "animals", config)
    (tmp_path / "animals" / "labels.txt").write_text("cat\ndog\ncow\nhen\n")
    server = served(f"--model-repository={tmp_path}")
    (command,) = page.commands
    (code,) = page.code

    assert curl(server, command) == json.loads(answer)
    assert python(server, code) == printed
    assert ast.literal_eval(printed.replace("\n ", ", ")) == [[b"0.600000:1:dog"], [b"0.700000:0:cat"]]
