"""Compile shared objects for tests: strategies, repository agents, caches."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tritonpy_sdk.headers import DIRECTORY

_COMPILERS = {".c": ("CC", ("cc", "gcc", "clang")), ".cc": ("CXX", ("c++", "g++", "clang++"))}


def find_compiler(suffix: str = ".c") -> list[str] | None:
    """The command of a compiler for files with this suffix, `.c` or `.cc`; None where there is none."""
    variable, names = _COMPILERS[suffix]
    if command := os.environ.get(variable):
        return shlex.split(command)
    return next(([name] for name in names if shutil.which(name)), None)


def compile_shared_object(source: Path, output: Path, *flags: str) -> Path:
    """Compile one source file to a shared object, with the headers of this distribution.

    Args:
        source: ends in `.c` or `.cc`.
        output: the file to write; its directory is made.
        flags: further ones for compiler and linker.

    Raises:
        RuntimeError: there is no compiler, or it refused; with what it says.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    command = _command(source, *flags)
    _run([*command, "-o", str(output)])
    return output


def _command(source: Path, *flags: str) -> list[str]:
    """What compiles a source, but for where to.

    Raises:
        RuntimeError: there is no compiler.
    """
    compiler = find_compiler(source.suffix)
    if compiler is None:
        variable, names = _COMPILERS[source.suffix]
        raise RuntimeError(
            f"no compiler for {source}: none of {', '.join(names)} is found, {variable} is not set"
        )
    command = [*compiler, "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{DIRECTORY}"]
    return [*command, str(source), *flags]


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def _content_key(source: Path, *flags: str) -> str:
    """Names what becomes of a source: differs when it, a header, the compiler or the command does."""
    command = _command(source, *flags)
    compiler = find_compiler(source.suffix) or []
    read = [*command, "-E", "-Wno-unused-command-line-argument"]  # of Clang, which is told to link as well
    parts = (shlex.join(command).encode(), _run([*compiler, "--version"]), _run(read))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


class SharedObjects:
    """Shared objects made of the sources below a directory, as tests ask for them: each once.

    Args:
        sources: where they are.
        room: a directory for what is made; that of a session, so that its tests share them.
        kept: a directory from which later sessions, and others beside this one, take what is made of the same
            source, headers, compiler and flags; None to compile it anew.
    """

    def __init__(self, sources: Path, room: Path, kept: Path | None = None) -> None:
        self._sources = sources
        self._room = room
        self._kept = kept
        self._made: dict[tuple[str, ...], Path] = {}

    def __call__(self, name: str, *flags: str) -> Path:
        """Compile a source such as `strategies/volume.c`; the test is skipped where there is no compiler.

        Args:
            name: its path below the directory.
            flags: see `compile_shared_object`.

        Raises:
            RuntimeError: the compiler refused.
        """
        source = self._sources / name
        if find_compiler(source.suffix) is None:
            pytest.skip(f"there is no compiler for {name}")
        key = (name, *flags)
        if key not in self._made:
            output = self._room / str(len(self._made)) / f"{source.stem}.so"
            self._made[key] = self._make(source, output, *flags)
        return self._made[key]

    def _make(self, source: Path, output: Path, *flags: str) -> Path:
        """Compile a source, or copy what was made of it before."""
        if self._kept is None:
            return compile_shared_object(source, output, *flags)
        kept = self._kept / f"{_content_key(source, *flags)}.so"
        if not kept.exists():
            compile_shared_object(source, output, *flags)
            self._kept.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._kept, delete=False) as file:
                file.write(output.read_bytes())
            os.replace(file.name, kept)  # another session may do the same now: each finds a whole one
        output.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(kept, output))
