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
import queue
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import IO, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300  # a compiler on a busy machine takes minutes
PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check")


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
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


class Server:
    """A running `corectl serve`; its ports are read from its log."""

    def __init__(self, environment: Environment, *arguments: str, **variables: str) -> None:
        ports = [
            f"--{service}-{what}"
            for service in ("http", "grpc", "metrics")
            for what in ("address=127.0.0.1", "port=0")
        ]
        self._process = subprocess.Popen(
            [environment.corectl, "serve", *ports, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_variables(**variables),
        )
        assert self._process.stderr is not None
        self.log: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,))
        self._reader.start()
        try:
            self.grpc_port = int(self._wait_for(r"Started GRPCInferenceService at 127\.0\.0\.1:(\d+)"))
            self.http_port = int(self._wait_for(r"Started HTTPService at 127\.0\.0\.1:(\d+)"))
            self._wait_for(r"Started (Metrics Service) at")  # it is ready with that
        except BaseException:
            self._process.kill()
            self.stop()
            raise

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.log.append(line)
                self._lines.put(line)
        self._lines.put("")

    def _wait_for(self, pattern: str) -> str:
        while line := self._lines.get(timeout=50):
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"the server ended before it said {pattern!r}:\n{''.join(self.log)}")

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON that the server answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", data)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read()
                return refusal.code, json.loads(text) if text else None

    def stop(self) -> int:
        """End it as an operator does; the exit status."""
        self._process.terminate()
        status = self._process.wait(timeout=30)  # nothing is in flight, so nothing may hold it up
        self._reader.join()
        return status
