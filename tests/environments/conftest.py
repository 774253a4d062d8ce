"""Environments that Python models can be told to run in, and one model that says where it runs."""

from __future__ import annotations

import fcntl
import http.client
import json
import re
import subprocess
import sys
import tarfile
import textwrap
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CACHE = Path(__file__).parents[2] / ".cache" / "interpreters"

SEES = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_output({"name": "SEEN", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_input({"name": "X", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def initialize(self, args):
        self.args = dict(args, model_config=json.loads(args["model_config"]))

    def execute(self, requests):
        seen = {
            "args": self.args,
            "file": __file__,
            "module": __name__,
            "model_directory": pb_utils.get_model_dir(),
            "modules": sorted(name for name in sys.modules if name.split(".")[0] == "tritonpy"),
            "path": sys.path,
            "pid": os.getpid(),
            "prefix": sys.prefix,
            "version": list(sys.version_info[:2]),
            "variables": dict(os.environ),
        }
        text = np.array([json.dumps(seen)], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", text)]) for _ in requests]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments are unpacked."""
    monkeypatch.setenv("TRITONPY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python model, SEES by default; returns the repository."""

    def model(name: str, environment: object = None, code: str = SEES, config: str = "") -> Path:
        version = tmp_path / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(textwrap.dedent(code))
        config = config or 'backend: "python"'
        if environment is not None:
            config += (
                f'\nparameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
            )
        (version.parent / "config.pbtxt").write_text(config)
        return tmp_path / "models"

    return model


def seen(port: int, model: str) -> dict[str, Any]:
    """What the model called `model` sees."""
    status, answer = post(port, f"/v2/models/{model}/infer", ASK)
    assert status == 200, answer
    return json.loads(answer["outputs"][0]["data"][0])


ASK = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}]}


def post(port: int, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
    """Send JSON, or nothing with GET; the status and the JSON that comes back."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    finally:
        connection.close()


@pytest.fixture
def ask() -> Callable[[int, str], dict[str, Any]]:
    return seen


@pytest.fixture
def call() -> Callable[..., tuple[int, dict[str, Any]]]:
    return post


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment of this Python, with numpy and nothing else."""
    directory = tmp_path / "env"
    venv.create(directory, symlinks=True)
    [site_packages] = directory.glob("lib/python*/site-packages")
    for package in Path(np.__file__).parent.parent.glob("numpy*"):
        (site_packages / package.name).symlink_to(package)
    return directory


@pytest.fixture
def packed(environment: Path, tmp_path: Path) -> Path:
    """The same environment, packed; its numpy is found where this Python's lies."""
    [site_packages] = environment.glob("lib/python*/site-packages")
    for package in site_packages.glob("numpy*"):
        package.unlink()
    only_numpy = tmp_path / "only_numpy"
    only_numpy.mkdir()
    for package in Path(np.__file__).parent.parent.glob("numpy*"):
        (only_numpy / package.name).symlink_to(package)
    (site_packages / "numpy.pth").write_text(str(only_numpy))
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(environment, ".")
    return archive


@pytest.fixture(scope="session")
def with_numpy() -> Callable[[Path], Path]:
    """A virtual environment of another interpreter, with numpy; kept between runs in `.cache`."""
    made: dict[Path, Path | str] = {}

    def with_numpy(python: Path) -> Path:
        if python not in made:
            made[python] = _virtual_environment(python)
        found = made[python]
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return with_numpy


def _virtual_environment(python: Path) -> Path | str:
    said = subprocess.run([str(python), "--version"], capture_output=True, text=True)
    version = re.fullmatch(r"Python ([\d.]+\w*)", said.stdout.strip())
    if version is None:
        return f"{python} does not say its version: {said.stderr.strip() or said.stdout.strip()}"
    directory = CACHE / version[1]
    directory.mkdir(parents=True, exist_ok=True)
    complete = directory / "complete"
    with (directory / "lock").open("w") as lock:  # several test processes may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = directory / "venv"
        if complete.exists() and (environment / "bin" / "python").exists():
            return environment
        short = ".".join(version[1].split(".")[:2])
        # By our own pip, without bytecode, of which a worker reads little: with a pip of its own, which is
        # installed first, and all of numpy compiled it takes five times as long.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--retries=3", "--timeout=10", "--no-compile", "--only-binary=:all:"]
        packages = environment / "lib" / f"python{short}" / "site-packages"
        for command in (
            [str(python), "-m", "venv", "--clear", "--without-pip", str(environment)],
            [*pip, f"--python-version={short}", f"--target={packages}", "numpy"],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                return f"numpy for {python} cannot be installed: {' '.join(last)}"
        complete.touch()
        return environment
