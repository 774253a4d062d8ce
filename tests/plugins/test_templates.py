"""What `corectl new` makes is built, installed, asked and tested by a stranger, with the commands it prints.

All of it happens in one environment that sees nothing of this checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy_sdk.testing import find_compiler

from .clean_environment import (
    COMPILER_S,
    ROOT,
    Environment,
    Server,
    clean_variables,
    dependencies_of,
    link_distribution,
    make_wheels,
)

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.timeout(600),  # the first one waits until wheels are made, and a library is compiled
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.skipif(find_compiler(".cc") is None, reason="there is no C++ compiler"),
]

NAME = "by-tenant"
PLUGINS = ("core", "sdk", "plugins/abi", "plugins/backends/python", "plugins/backends/pytorch")
TOOLS = ("hatchling", "mypy", "pytest")
OF_TEMPLATES = ("aiohttp",)  # what a template needs beside tritonpy
KINDS = {
    f"agent {NAME}": '"model_version":"1"',
    f"backend {NAME}": '"data":[-2.0,-1.0,7.0]',
    f"backend {NAME} --language c++": '"data":[0,1,2,0,0,0]',
    f"cache {NAME}": '"data":[1.5]',
    f"frontend {NAME}": '{"OUTPUT0": [[0.0], [1.5]]}',
    f"model {NAME}": '"data":[5.0,1.0]',
    f"ops {NAME}": '"data":[0.0,4.0,9.0]',
    f"store {NAME}": '"data":[1.5]',
    f"strategy {NAME}": '"data":[1.5]',
    f"strategy {NAME} --language c": "strategy",
    f"strategy {NAME} --language c++": "strategy",
}
"""What follows `corectl new`, and what the last of the commands that it prints shows."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One with `corectl`, our Python and PyTorch backends, and what tests and type checks need."""
    wheelhouse = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(wheelhouse, *(ROOT / folder for folder in PLUGINS))
    names = [path.name.partition("-")[0].replace("_", "-") for path in wheelhouse.iterdir()]
    clean = Environment(tmp_path_factory.mktemp("clean") / "venv", *names)
    frameworks = ["torch"] if find_torch() else []
    for linked in (*TOOLS, *OF_TEMPLATES, *frameworks):
        for name in (linked, *dependencies_of(linked)):
            link_distribution(name, clean.site_packages)
    clean.install(wheelhouse, *names)
    clean.download("editables")  # for hatchling; 5 kB, and nobody here needs it but this test
    # The environment has no pip of its own. Nothing is downloaded: what builds need is here.
    pip = clean.python.with_name("pip")
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {clean.python} "$@"\n')
    pip.chmod(0o755)
    return clean


def find_torch() -> bool:
    try:
        return bool(dependencies_of("torch"))
    except ModuleNotFoundError:
        return False


@pytest.fixture
def shell(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in a new folder, where servers run, too."""
    monkeypatch.chdir(tmp_path)
    return Shell(environment)


class Shell:
    """Runs what a stranger types who has activated their environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._variables = clean_variables(
            PATH=f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}",
            PIP_NO_INDEX="1",
            PIP_NO_BUILD_ISOLATION="0",  # pip negates it: builds use what is installed here
            PYTHONDONTWRITEBYTECODE="1",
            no_proxy="*",
        )

    def type(self, command: str, folder: Path | None = None) -> str:
        """What a command prints that succeeds."""
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=COMPILER_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve_and_ask(self, served: str, asked: list[str]) -> str:
        """Serve by one command, and type others beside it; what the last one prints."""
        server = Server(self._environment, *shlex.split(served.replace("port=9000", "port=0"))[2:])
        try:
            ports = {"8000": str(server.http_port)}
            if "--frontend-config" in served:
                ports["9000"] = server.wait_for_log(rf"frontend '{NAME}' at 127\.0\.0\.1:(\d+)\D")[1]
            printed = ""
            for command in asked:
                here = f" --url localhost:{ports['8000']}" if command.startswith("corectl ") else ""
                command = re.sub(r"(?<=localhost:)(8000|9000)", lambda port: ports[port[0]], command)
                printed = self.type(command + here)
        finally:
            status = server.stop()
        assert status == 0
        return printed


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_leads_to_an_answer_to_passing_tests_and_to_checked_types(
    shell: Shell, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if kind.startswith("ops") and not find_torch():
        pytest.skip("torch is not installed")
    folder, cache = Path(NAME), tmp_path_factory.getbasetemp() / "mypy"

    printed = shell.type(f"corectl new {kind}").partition("Next:\n")[2]
    steps = [line.strip() for line in printed.splitlines()]
    [serving] = [index for index, step in enumerate(steps) if step.startswith("corectl serve ")]
    for step in steps[:serving]:
        shell.type(step)
    answer = shell.serve_and_ask(steps[serving], steps[serving + 1 :])
    tests = shell.type("python -m pytest -q -p no:cacheprovider", folder)
    types = shell.type(f"python -m mypy --cache-dir {cache}", folder)

    assert KINDS[kind] in answer
    assert " passed" in tests
    assert "Success: no issues found" in types
