"""Allocators other than the system's: those that are installed, or Debian's packages of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tritonpy.cli.malloc import ALLOCATORS, MallocUnavailable, find_library

CACHE = Path(__file__).parent.parent.parent / ".cache" / "allocators"


def make_findable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers that are started from now on find an allocator; skip the test where it cannot be had.

    A package is only unpacked, into a directory of its own: nothing is installed.
    """
    if _is_there(name):
        return
    said = "" if _unpacked(name) else _fetch(name)
    for directory in _unpacked(name):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(directory))
        if _is_there(name):
            return
    pytest.skip(f"{name} is not installed, and its package cannot be fetched: {said}")


def _is_there(name: str) -> bool:
    try:
        find_library(name)
    except MallocUnavailable:
        return False
    return True


def _unpacked(name: str) -> list[Path]:
    package = CACHE / ALLOCATORS[name].package
    return sorted({path.parent for path in package.glob("usr/lib/*/*.so.*")})


def _fetch(name: str) -> str:
    """Unpack the package; gives what was said instead, if anything."""
    package = ALLOCATORS[name].package
    CACHE.mkdir(parents=True, exist_ok=True)
    download = ["apt-get", "-o", "Acquire::Retries=3", "download", package]
    try:
        with TemporaryDirectory(dir=CACHE) as room:  # its place gets a package that is whole
            made = Path(room) / package
            made.mkdir()
            subprocess.run(download, cwd=made, check=True, capture_output=True, timeout=120)
            for archive in made.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(archive), str(made)], check=True, timeout=60)
            shutil.rmtree(CACHE / package, ignore_errors=True)
            made.rename(CACHE / package)
    except (OSError, subprocess.SubprocessError) as exc:
        return f"{exc} {(getattr(exc, 'stderr', None) or b'').decode(errors='replace').strip()}"
    return ""
