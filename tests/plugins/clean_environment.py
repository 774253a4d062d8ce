"""Environments in which our distributions come from wheels, and servers that run there.

Such an environment must not see this checkout: here our distributions are installed editable, and what only
works in a checkout is worth nothing. What they declare as their dependencies is linked in from the running
environment: a download would make the test slow and depend on the network, and a `.pth` file pointing here
would let the editable installs shine through. A dependency that is used but not declared fails here, as it
would elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess

ROOT = Path(__file__).parents[2]
COMPILER_S = 300  # a compiler on a busy machine takes minutes
PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check")


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMPILER_S,
        check=False,
        env=clean_variables(**environment),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_variables(**additions: str) -> dict[str, str]:
    """The process environment without anything that would make a Python look elsewhere."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "UV_"))
    }
    return {**kept, **additions}


def dependencies_of(name: str) -> set[str]:
    """Distributions that `name` needs, directly or not, in the running environment."""
    needed: set[str] = set()
    todo = [name]
    while todo:
        for line in distribution(todo.pop()).requires or []:
            requirement = Requirement(line)
            dependency = canonicalize_name(requirement.name)
            if dependency not in needed and (
                requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            ):
                needed.add(dependency)
                todo.append(dependency)
    return needed


def link_distribution(name: str, site_packages: Path) -> None:
    """Make an installed distribution appear in another environment of the same Python."""
    installed = distribution(name)
    top_level = {
        file.parts[0] for file in installed.files or [] if file.parts[0] not in ("..", "__pycache__")
    }
    for entry in top_level:
        link = site_packages / entry
        if not link.is_symlink():  # several distributions may share a namespace package
            link.symlink_to(str(installed.locate_file(entry)))


def make_wheels(wheelhouse: Path, *sources: Path, **variables: str) -> None:
    """Make wheels of directories; the build backend is the one of the running environment."""
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", wheelhouse)
    run(*PIP, *build, *sources, **variables)


class Environment:
    """A virtual environment that sees nothing of this checkout.

    Attributes:
        python: its interpreter.
        corectl: the program, once tritonpy is installed.

    Args:
        directory: where it is made.
        links: distributions whose dependencies are linked in; they themselves are to be installed.
    """

    def __init__(self, directory: Path, *links: str) -> None:
        venv.create(directory, symlinks=True)
        self._binaries = directory / "bin"
        self.python = self._binaries / "python"
        self.corectl = self._binaries / "corectl"
        for dependency in set[str]().union(*map(dependencies_of, links)) - set(links):
            link_distribution(dependency, self.site_packages)

    def install(self, wheelhouse: Path, *names: str, **variables: str) -> None:
        """Install from wheels; pip also checks that every requirement is met."""
        options = ("--no-index", "--find-links", wheelhouse)
        run(*PIP, "--python", self.python, "install", *options, *names, **variables)

    def download(self, *requirements: str) -> None:
        """Install from wherever pip finds it; what is there already may be moved to another release."""
        # Half the time goes without bytecode, of which a server reads little.
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-compile")
        done = subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def site_packages(self) -> Path:
        return Path(run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


class Server(ServerProcess):
    """A `corectl serve` of such an environment."""

    def __init__(self, environment: Environment, *arguments: str, **variables: str) -> None:
        super().__init__(*arguments, program=environment.corectl, environment=clean_variables(**variables))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Also closes it: its log stays."""
        try:
            return super().stop(number)
        finally:
            self.close()

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON that the server answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", data)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read()
                return refusal.code, json.loads(text) if text else None
