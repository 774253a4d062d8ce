"""A Clang: one that is installed, or Debian's packages unpacked in a cache; no root needed."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("CLANG_CACHE", Path(__file__).parents[3] / ".cache/clang"))
_UNPACKED = CACHE / "unpacked"


_MODES = {"clang": "gcc", "clang++": "g++"}
"""What a compiler of C, and one of C++, is like."""


def find(name: str = "clang++") -> str:
    """The command of a compiler of C++, or of C; skips where there is none and none can be fetched."""
    if installed := shutil.which(name):
        return installed
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        pytest.skip(f"there is no {name}, and no apt-get to fetch it with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:  # several test processes may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _UNPACKED.exists():
            _fetch()
    return _command(name)


def _fetch() -> None:
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "-q", "-y", "--download-only", "--no-install-recommends"]
    options = ("APT::Sandbox::User=", f"Dir::Cache::archives={archives}", "Debug::NoLocking=1")
    for option in (*options, "Acquire::Retries=3"):
        command += ["-o", option]
    try:
        subprocess.run([*command, "install", "clang"], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as exc:
        said = (getattr(exc, "stderr", None) or b"").decode(errors="replace").strip()
        pytest.skip(f"there is no clang++, and Debian's could not be fetched: {exc} {said}")
    unpacked = CACHE / "unpacked.new"
    shutil.rmtree(unpacked, ignore_errors=True)
    for package in archives.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
    unpacked.rename(_UNPACKED)


def _command(name: str) -> str:
    """The program with the libraries that were unpacked beside it."""
    programs = sorted(_UNPACKED.glob("usr/lib/llvm-*/bin/clang"))
    if not programs:
        pytest.skip(f"there is no {name}, and none in what was unpacked to {_UNPACKED}")
    places = [*_UNPACKED.glob("usr/lib/*-linux-gnu*"), programs[0].parents[1] / "lib"]
    script = CACHE / name
    partial = CACHE / f"{name}.{os.getpid()}"
    paths = shlex.quote(":".join(map(str, places)))
    program = shlex.quote(str(programs[0]))
    partial.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH={paths} exec {program} --driver-mode={_MODES[name]} "$@"\n'
    )
    partial.chmod(0o755)
    partial.rename(script)
    return str(script)
