"""What the pages tell a newcomer to type works, on the server that they start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(180)  # each command is a process of its own

ROOT = Path(__file__).parent.parent.parent
MODELS = ROOT / "examples/digits/models"
PAGES = {
    "README.md": MODELS,
    "examples/digits/README.md": MODELS,
    "examples/text_generation/README.md": ROOT / "examples/text_generation/models",
}

# Lines that set up or serve are run by `.ci/run` itself, or by another test; those for Docker, which not
# every machine has, are only read by one. The rest of a page is run here.
RUN_ELSEWHERE = (
    "make ",
    "pip install",
    ".venv/bin/pip ",
    "corectl serve",
    "corectl new ",
    "python3 -m venv",
    ".cache/",
    "docker compose",
)

_BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """The commands of a page's shell blocks; a trailing backslash continues a line."""
    found = []
    for block in _BLOCK.findall((ROOT / page).read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").strip()
            if command and not command.startswith("#"):
                found.append(command)
    return found


def runnable(page: str) -> list[str]:
    return [command for command in commands(page) if not command.startswith(RUN_ELSEWHERE)]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_succeeds(corectl: Callable[..., Any], page: str) -> None:
    server = corectl(f"--model-repository={PAGES[page]}")
    http = f"localhost:{server.ports['HTTPService']}"
    grpc = f"localhost:{server.ports['GRPCInferenceService']}"
    scripts = str(Path(sys.executable).parent)
    for command in runnable(page):
        line = command.replace(".venv/bin", scripts).replace("localhost:8000", http)
        if "client.py" in line:
            line += f" --url {http} --grpc-url {grpc}"
        elif "/corectl " in line:
            line += f" --url {http}"
        result = subprocess.run(
            line,
            shell=True,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "no_proxy": "*"},
        )

        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        assert result.stdout.strip(), command
        assert '{"error"' not in result.stdout, f"{command}\n{result.stdout}"


INSTALLING = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "core/*.md", "sdk/**/*.md", "plugins/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if "pip install" in path.read_text()
)


@pytest.mark.parametrize("page", INSTALLING, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_installs_folders_of_this_repository_and_no_names_of_ours(page: Path) -> None:
    """Our distributions are on no package index, where anybody may take their names."""
    text = page.read_text()
    made = {f"./{name}" for name in re.findall(r"corectl new \w+ ([\w-]+)", text)}
    for line in text.splitlines():
        if "pip install" not in line or line.startswith("`pip install tritonpy-abi`, install the folder"):
            continue
        given = re.findall(r"[^\s'\"`,]+", line.partition("pip install")[2])
        assert not [word for word in given if word.startswith("tritonpy")], line
        for word in given:
            folder = word.partition("[")[0].replace("$TRITONPY", str(ROOT))
            if folder.startswith(("./", "../", "/")) and folder not in made:
                base = page.parent if folder.startswith("../") else ROOT
                assert (base / folder / "pyproject.toml").is_file(), line


def test_the_pages_have_commands_to_run() -> None:
    assert all(len(runnable(page)) >= 2 for page in PAGES)


def test_the_readme_promises_the_two_commands() -> None:
    assert {"make serve", "make test"} <= set(commands("README.md"))


def test_the_first_answer_is_a_seven(served: Callable[..., Any]) -> None:
    server = served(f"--model-repository={MODELS}")
    line = next(command for command in commands("README.md") if command.startswith("curl"))
    line = line.replace("localhost:8000", f"localhost:{server.ports['HTTPService']}")
    answer = subprocess.run(
        [*line.split(), "--noproxy", "*"], cwd=ROOT, capture_output=True, check=True, timeout=60
    ).stdout

    import json

    scores = json.loads(answer)["outputs"][0]["data"]
    assert scores.index(max(scores)) == 7


@pytest.mark.parametrize("mode", [[], ["--straight"]])
def test_the_digits_client_reads_at_least_97_percent_over_both_protocols(
    served: Callable[..., Any], mode: list[str]
) -> None:
    server = served(f"--model-repository={MODELS}")
    result = subprocess.run(
        [
            sys.executable,
            "examples/digits/client.py",
            "--url",
            f"localhost:{server.ports['HTTPService']}",
            "--grpc-url",
            f"localhost:{server.ports['GRPCInferenceService']}",
            *mode,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    accuracies = [float(number) for number in re.findall(r"(\d+\.\d+) ?%", result.stdout)]
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(accuracies) == 2, result.stdout
    assert min(accuracies) >= 97
