"""The Python that runs a model: asked once what it is, and in which environment its processes must run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonpy.plugin import without_secrets

OLDEST_VERSION = (3, 9)

_TIMEOUT_S = 120  # the first import of numpy from a cold network disk takes its time

# Runs on any interpreter named, Python 2 included. The working directory must not be on the path: a model's
# worker does not have it there either.
_PROBE = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json, os
found = {"version": list(sys.version_info[:3]), "variables": dict(os.environ)}
try:
    import numpy
    found["numpy"] = numpy.__version__
except Exception as exc:
    found["error"] = "%s: %s" % (type(exc).__name__, exc)
print("\\n" + json.dumps(found))
"""

# As Triton does, `activate` of an environment is sourced: what people have added there, and what conda
# packages bring to be run on activation, may set variables that their libraries need.
_ACTIVATE = (
    'for script in "$@"; do set --; source "$script" >&2; done; exec "$TRITONPY_PYTHON" -c "$TRITONPY_PROBE"'
)
_SHELL = ("bash", "--norc", "--noprofile", "-c", _ACTIVATE, "bash")

_OF_THE_SERVER = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
_OF_THE_SHELL = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "PS1", "TRITONPY_PYTHON", "TRITONPY_PROBE"))


class BadInterpreter(Exception):
    """No model can run on this interpreter; the text says why."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that can run models.

    Attributes:
        path: the program.
        environment: how the variables of its processes differ from the server's; None takes one away.
    """

    path: Path
    environment: Mapping[str, str | None] = field(default_factory=dict)


_Signature = tuple[object, ...]
_known: dict[Path, tuple[_Signature, Interpreter]] = {}
_locks: dict[Path, threading.Lock] = {}


def find_interpreter(directory: Path) -> Path:
    """The interpreter of the environment in `directory`.

    Raises:
        BadInterpreter: there is none.
    """
    for name in ("python", "python3"):
        path = directory / "bin" / name
        if path.exists():
            return path
    path = directory / "bin" / "python"
    reason = ""
    if path.is_symlink():
        reason = f" (a link to {os.readlink(path)}, which is not on this machine)"
    raise BadInterpreter(
        f"Path {path} does not exist{reason}. The Python environment should contain an interpreter there"
    )


def check_interpreter(path: Path) -> Interpreter:
    """Ask an interpreter for its version and its numpy, in the environment that it belongs to.

    The answer is remembered until one of the files that it depends on changes. Blocking.

    Raises:
        BadInterpreter: it does not run, is too old or has no numpy.
    """
    with _locks.setdefault(path, threading.Lock()):
        prefix = _prefix(path)
        scripts = _activation_scripts(prefix) if prefix is not None else []
        signature = tuple(map(_stat, (path, *scripts)))
        known = _known.get(path)
        if known is not None and known[0] == signature:
            return known[1]
        interpreter = Interpreter(path, _probe(path, prefix, scripts))
        _known[path] = signature, interpreter
        return interpreter


def _prefix(path: Path) -> Path | None:
    """The environment that an interpreter belongs to; None for one of the system."""
    prefix = path.parent.parent
    marks = ("pyvenv.cfg", "conda-meta", "bin/activate")
    return prefix if path.parent.name == "bin" and any((prefix / mark).exists() for mark in marks) else None


def _activation_scripts(prefix: Path) -> list[Path]:
    activate = prefix / "bin" / "activate"
    if activate.is_file():
        return [activate]  # conda-pack's runs the others
    return sorted((prefix / "etc" / "conda" / "activate.d").glob("*.sh"))


def _stat(path: Path) -> object:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _probe(path: Path, prefix: Path | None, scripts: Sequence[Path]) -> dict[str, str | None]:
    public = without_secrets(os.environ)  # it is the environment's code that runs now
    variables = _without_allocator(
        {name: value for name, value in public.items() if name not in _OF_THE_SERVER}
    )
    if prefix is not None:
        variables |= _own_variables(prefix, variables)
    command = [str(path), "-c", _PROBE]
    if scripts and shutil.which(_SHELL[0]):
        command = [*_SHELL, *map(str, scripts)]
        variables |= {"TRITONPY_PYTHON": str(path), "TRITONPY_PROBE": _PROBE}
        if scripts[0].name == "activate":  # conda-pack's does nothing where its work seems to be done
            variables.pop("CONDA_PREFIX", None)
    found = _ask(path, command, variables)
    version = ".".join(map(str, found["version"]))
    if tuple(found["version"][:2]) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise BadInterpreter(f"{path} is Python {version}, and models need {oldest} or newer")
    if "error" in found:
        raise BadInterpreter(
            f"{path} (Python {version}) has no numpy that can be imported: {found['error']}; "
            f"'{path} -m pip install numpy' installs it"
        )
    result: dict[str, str] = found["variables"]
    if prefix is not None:
        result |= _own_variables(prefix, result)  # an environment that was moved activates its former place
    changes: dict[str, str | None] = {name: None for name in public if name not in result}
    changes |= {name: value for name, value in result.items() if public.get(name) != value}
    return {name: value for name, value in changes.items() if name not in _OF_THE_SHELL}


def _without_allocator(variables: dict[str, str]) -> dict[str, str]:
    """Leave the server's `--malloc` out: its library needs the system's C++ library, this one has its own."""
    library = variables.pop("TRITONPY_MALLOC_LIBRARY", "")
    if library:
        entries = [entry for entry in variables.pop("LD_PRELOAD", "").split(":") if entry != library]
        if entries:
            variables["LD_PRELOAD"] = ":".join(entries)
    return variables


def _own_variables(prefix: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that any environment needs."""
    own = {"PATH": _put_first(prefix / "bin", variables.get("PATH", os.defpath))}
    if (prefix / "pyvenv.cfg").exists():
        own["VIRTUAL_ENV"] = str(prefix)
        return own
    own["LD_LIBRARY_PATH"] = _put_first(prefix / "lib", variables.get("LD_LIBRARY_PATH", ""))
    own["PYTHONNOUSERSITE"] = "1"  # packages of the server's user are not part of a packed environment
    if (prefix / "conda-meta").exists():
        own["CONDA_PREFIX"] = str(prefix)
    return own


def _put_first(directory: Path, path_list: str) -> str:
    first = str(directory)
    return ":".join([first, *(entry for entry in path_list.split(":") if entry and entry != first)])


def _ask(
    path: Path, command: Sequence[str], variables: Mapping[str, str]
) -> dict[str, Any]:  # Any: JSON, see `_PROBE`
    try:
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise BadInterpreter(f"{path} did not answer within {_TIMEOUT_S} s") from exc
    except OSError as exc:
        raise BadInterpreter(f"{path} cannot be run: {exc.strerror or exc}") from exc
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError) as exc:
        said = done.stderr.decode(errors="replace").strip()[-500:] or "it said nothing"
        raise BadInterpreter(
            f"{path} is no Python interpreter that works (status {done.returncode}): {said}"
        ) from exc
    return found
