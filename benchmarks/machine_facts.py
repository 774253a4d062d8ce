"""What a reader of a result must know about the machine and the software it came from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

DISTRIBUTIONS = ("tritonpy", "numpy", "uvloop", "httptools", "grpcio", "onnxruntime", "onnx")


def machine_facts() -> dict[str, object]:
    """Return processor, memory, kernel, interpreter, versions and commit, as far as they can be told."""
    return {
        "cpu_model": _first_value("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_mib": int((_first_value("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // 1024,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "load_average_at_start": os.getloadavg()[0],
        "distributions": {name: _version(name) for name in DISTRIBUTIONS},
        "commit": _commit(),
    }


def _first_value(path: str, key: str) -> str | None:
    """Return what stands after the first `key:` in a file of /proc."""
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _version(distribution: str) -> str | None:
    """Return the installed version of a distribution, None if it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of this checkout, with `+` if tracked files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
