"""An environment that a model names for its processes: another interpreter, with another TensorFlow."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tritonpy.plugin import InvalidArg, Model, WorkerCommand, without_secrets

_log = logging.getLogger("tritonpy.backend.tensorflow")

ENVIRONMENT = "EXECUTION_ENV_PATH"
"""The parameter that names it, as for Python models."""

_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_INTERPRETERS = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
_NEEDED = ("tritonpy", "tritonpy-backend-tensorflow")
_TIMEOUT_S = 120  # the first look into an environment on a cold network disk takes its time

_PROBE = """
import importlib.metadata as metadata, importlib.util, json
found = {"tensorflow": importlib.util.find_spec("tensorflow") is not None}
for name in %r:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
print("\\n" + json.dumps(found))
"""


def environment_command(model: Model) -> WorkerCommand | None:
    """The command for a model's workers; None where it names no environment. Blocking.

    Raises:
        InvalidArg: there is no interpreter, or what the workers need is not installed there.
    """
    given = model.parameter(ENVIRONMENT)
    if not given:
        return None
    where = f"parameter {ENVIRONMENT} of model '{model.name}' is '{given}'"
    interpreter = _find_interpreter(_path(model, given), where)
    variables: dict[str, str | None] = {"PYTHONHOME": None, "PYTHONPATH": None}
    prefix = interpreter.parent.parent
    if (prefix / "pyvenv.cfg").exists():
        path = os.environ.get("PATH", os.defpath)
        variables |= {"VIRTUAL_ENV": str(prefix), "PATH": f"{interpreter.parent}{os.pathsep}{path}"}
    _check(interpreter, variables, where)
    return WorkerCommand.of_hooks(str(interpreter), variables)


def warn_of_thread(model: Model) -> None:
    """Log a warning where a model runs on the server's interpreter although it names an environment."""
    given = model.parameter(ENVIRONMENT)
    if not given:
        return
    path = _path(model, given)
    if Path(sys.prefix) not in (path, path.parent.parent) and path != Path(sys.executable):
        _log.warning(
            "model '%s' runs on a thread of the server, and so with the server's TensorFlow, although "
            "parameter %s is '%s'",
            model.name,
            ENVIRONMENT,
            given,
        )


def _path(model: Model, given: str) -> Path:
    if given.startswith(_MODEL_DIRECTORY):
        given = f"{model.directory}{given.removeprefix(_MODEL_DIRECTORY)}"
    return Path(os.path.abspath(given))  # links stay: that of a virtual environment's interpreter means it


def _find_interpreter(path: Path, where: str) -> Path:
    if path.is_dir():
        found = next((path / name for name in _INTERPRETERS if (path / name).exists()), None)
        if found is not None:
            return found
        raise InvalidArg(f"{where}: there is no {_INTERPRETERS[0]} in '{path}'")
    if path.is_file() and os.access(path, os.X_OK):
        return path
    what = "a file that is no program" if path.exists() else "not there"
    raise InvalidArg(
        f"{where}: '{path}' is {what}, expected the directory of a virtual or conda environment, or the path "
        "of an interpreter; a packed environment has to be unpacked"
    )


def _check(interpreter: Path, variables: Mapping[str, str | None], where: str) -> None:
    """Ask the interpreter for what the workers need."""
    environment: dict[str, str | None] = {**without_secrets(os.environ), **variables}
    try:
        done = subprocess.run(
            [str(interpreter), "-P", "-c", _PROBE % (_NEEDED,)],
            env={name: value for name, value in environment.items() if value is not None},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # Any: see `_PROBE`
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.decode(errors="replace").strip()[-500:]
        raise InvalidArg(f"{where}: '{interpreter}' is no Python from 3.11 on that works: {said}") from exc
    except (IndexError, OSError, ValueError, subprocess.TimeoutExpired) as exc:
        raise InvalidArg(f"{where}: '{interpreter}' is no Python that works: {exc}") from exc
    own = version("tritonpy")
    missing = [name for name in _NEEDED if found[name] is None] + ["tensorflow"] * (not found["tensorflow"])
    if missing:
        raise InvalidArg(
            f"{where}: no {', '.join(missing)} is installed there; a worker needs tritonpy {own}, as the "
            f"server has it, tritonpy-backend-tensorflow and TensorFlow, by '{interpreter} -m pip install'"
        )
    if found["tritonpy"] != own:
        raise InvalidArg(
            f"{where}: tritonpy {found['tritonpy']} is installed there, expected the server's version {own}"
        )
