"""What the page about environments shows works, command by command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "environments.md"

# No conda here, and numpy is linked instead of installed; servers are started below.
RUN_ELSEWHERE = ("conda ", "envs/reader/bin/python -m pip install numpy", "corectl serve")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return _BLOCK.findall(PAGE.read_text())


def commands() -> list[str]:
    lines = [line for kind, text in blocks() if kind == "console" for line in text.splitlines()]
    return [line.removeprefix("$ ") for line in lines]


def run(command: str, directory: Path) -> str:
    words = command.replace("python3", sys.executable, 1).split()
    if words[0] == "corectl":
        words[0] = str(Path(sys.executable).with_name("corectl"))
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(180)  # it makes an environment and packs it
def test_the_page_works_as_it_is_written(corectl, tmp_path, cache):
    for kind, text in blocks():
        if kind != "console" and text.startswith("# "):
            name, _, content = text.removeprefix("# ").partition("\n")
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    asked = [command for command in commands() if command.startswith("corectl infer")]
    for command in commands():
        if not command.startswith((*RUN_ELSEWHERE, "corectl infer")):
            run(command.replace("-m venv", "-m venv --without-pip"), tmp_path)
    [site_packages] = tmp_path.glob("envs/reader/lib/python*/site-packages")
    (site_packages / "numpy.pth").write_text(str(Path(np.__file__).parent.parent))

    server = corectl(
        f"--model-repository={tmp_path}/models",
        f"--backend-directory={tmp_path}/backends",
    )
    url = f" --url localhost:{server.ports['HTTPService']}"
    said = [run(command + url, tmp_path) for command in asked]

    assert [command.split()[2] for command in asked] == ["reader", "hello"]
    assert f"{tmp_path}/envs/reader" in said[0]
    assert "hello, you" in said[1]
    assert (tmp_path / "models" / "reader" / "env.tar.gz").stat().st_size > 0


def test_the_flags_of_the_page_exist():
    ours = [command for command in commands() if command.startswith("corectl ")]
    flags = {flag for command in ours for flag in re.findall(r"--[a-z-]+", command)}
    known = run("corectl serve --help", Path()) + run("corectl infer --help", Path())

    assert {"--backend-directory", "--input"} <= flags
    assert [flag for flag in flags if flag not in known] == []
