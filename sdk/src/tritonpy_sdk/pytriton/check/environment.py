"""Facts of this environment that matter to a server."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from tritonpy.cores import usable_core_count

_WAIT_S = 20.0


def facts() -> list[str]:
    """One line for each; nothing that is secret."""
    found = [
        f"platform: {platform.platform()}",
        f"machine: {platform.machine()}",
        f"C library: {' '.join(platform.libc_ver())}",
        f"Python: {sys.version}",
        f"executable: {sys.executable}",
        f"in a container: {Path('/.dockerenv').exists() or Path('/run/.containerenv').exists()}",
        f"cores: {usable_core_count()} of {os.cpu_count()}",
        *_memory(),
        f"free on {Path.cwd()}: {shutil.disk_usage('.').free >> 20} MiB",
        *_output("nvidia-smi", "-L"),
        *_output("gcc", "--version"),
    ]
    names = sorted(
        name
        for name in os.environ
        if name.startswith(("CUDA", "LD_", "NVIDIA", "PYTHON", "TRITON", "PYTRITON"))
    )
    found.append(f"variables that are set: {', '.join(names) or 'none'}")
    packages = {f"{each.metadata['Name']}=={each.version}" for each in distributions()}
    return [*found, "packages:", *(f"  {name}" for name in sorted(packages, key=str.lower))]


def _memory() -> list[str]:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return []
    wanted = ("MemTotal", "MemAvailable", "SwapTotal")
    return [line for line in text.splitlines() if line.startswith(wanted)]


def _output(program: str, *arguments: str) -> list[str]:
    path = shutil.which(program)
    if path is None:
        return [f"{program}: not installed"]
    try:
        ended = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return [f"{program}: {exc}"]
    lines = (ended.stdout or ended.stderr).strip().splitlines()
    return [f"{program}: {line}" for line in lines[:16]] or [f"{program}: ended with {ended.returncode}"]
