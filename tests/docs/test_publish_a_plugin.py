"""The page on publishing: its names, metadata and versions are so, and its commands make checked wheels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from tritonpy.plugin import API_VERSION
from tritonpy.plugin_manager import KINDS
from tritonpy_sdk.testing import find_compiler
from trove_classifiers import classifiers

from ..plugins.clean_environment import COMPILER_S, Environment, clean_variables, make_wheels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/publish-a-plugin.md").read_text()
EXAMPLES = ROOT / "examples"
INSTALL_S = 900


def block(language: str) -> str:
    [text] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def commands(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (.*)", section, re.MULTILINE)


def test_the_names_are_those_of_the_examples() -> None:
    rows = re.findall(
        r"^\| [\w ]+ \| `([\w-]+)-NAME` \| `(\w+)_NAME` \| `tritonpy\.(\w+)` \|", PAGE, re.MULTILINE
    )

    # Plugins of these kinds are our own so far.
    assert {kind for _, _, kind in rows} == set(KINDS) - {"cli", "loaders"}
    for distribution, module, kind in rows:
        example = EXAMPLES / f"{distribution}-xyz"
        project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
        assert project["entry-points"] == {f"tritonpy.{kind}": {"xyz": f"{module}_xyz"}}
        assert project["name"] == example.name


def test_the_metadata_is_what_an_index_takes_and_what_the_template_has() -> None:
    page = tomllib.loads(block("toml"))
    template = tomllib.loads((EXAMPLES / "tritonpy-backend-xyz/pyproject.toml").read_text())

    project = page["project"]
    assert set(project["classifiers"]) <= classifiers
    assert not any(name.startswith("License ::") for name in project["classifiers"])
    assert page["build-system"] == template["build-system"]
    for field in ("requires-python", "license", "license-files", "readme"):
        assert project[field] == template["project"][field]
    [ours] = [name for name in template["project"]["dependencies"] if Requirement(name).name == "tritonpy"]
    assert project["dependencies"] == [ours]
    [stated] = re.findall(r"`TRITONPY_API_VERSION = \((\d+), (\d+)\)`", PAGE)
    assert (API_VERSION[0], 0) <= tuple(map(int, stated)) <= API_VERSION  # a server takes that


def test_the_workflow_can_be_read() -> None:
    workflow = yaml.safe_load(block("yaml"))

    assert workflow["permissions"] == {"id-token": "write"}
    assert workflow["jobs"]["publish"]["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    wheelhouse = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(wheelhouse, ROOT / "core", ROOT / "sdk")
    environment = Environment(tmp_path_factory.mktemp("clean") / "venv")
    environment.download(*map(str, wheelhouse.iterdir()), "mypy", "pytest")
    pip = environment.python.with_name("pip")
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {environment.python} "$@"\n')
    pip.chmod(0o755)
    return Shell(environment, wheelhouse)


class Shell:
    """Runs what an author types in their environment, for whom the wheels of tritonpy are at hand."""

    def __init__(self, environment: Environment, wheelhouse: Path) -> None:
        given = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        links = f"{given.pop('PIP_FIND_LINKS', '')} {wheelhouse}".strip()
        path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
        self._variables = clean_variables(**given, PIP_FIND_LINKS=links, PATH=path)

    def type(self, command: str, folder: Path) -> str:
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


@pytest.mark.neighbours
@pytest.mark.timeout(INSTALL_S)
def test_the_commands_lead_to_a_wheel_that_works_alone(shell: Shell, tmp_path: Path) -> None:
    shell.type("corectl new backend words", tmp_path)
    folder = tmp_path / "words"
    shell.type("pip install --editable .", folder)

    printed = {command: shell.type(command, folder) for command in commands("Test it")}

    assert " passed" in printed["pytest"]
    assert "Success" in printed["mypy"]
    assert printed["twine check --strict dist/*"].count("PASSED") == 2
    checked = "backends:words of tritonpy-backend-words 1.0.0: can be used\n"
    assert printed["clean/bin/corectl plugins check backends:words"] == checked
    assert [path.name for path in folder.glob("dist/*.whl")] == [
        "tritonpy_backend_words-1.0.0-py3-none-any.whl"
    ]


@pytest.mark.neighbours
@pytest.mark.timeout(INSTALL_S)
@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
@pytest.mark.skipif(find_compiler(".cc") is None, reason="there is no C++ compiler")
def test_the_wheel_of_a_library_gets_a_name_that_an_index_takes(shell: Shell, tmp_path: Path) -> None:
    shell.type("corectl new backend words --language c++", tmp_path)
    folder = tmp_path / "words"

    for command in ("pip install build", "python -m build", *commands("Wheels of compiled plugins")):
        shell.type(command, folder)

    [wheel] = folder.glob("wheels/*.whl")
    assert re.fullmatch(r"tritonpy_backend_words-1\.0\.0-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
