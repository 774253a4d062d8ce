"""Compile shared objects for tests: strategies, repository agents, caches."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
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
    compiler = find_compiler(source.suffix)
    if compiler is None:
        variable, names = _COMPILERS[source.suffix]
        raise RuntimeError(
            f"no compiler for {source}: none of {', '.join(names)} is found, {variable} is not set"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler, "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{DIRECTORY}"]
    command += [str(source), "-o", str(output), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return output


class SharedObjects:
    """Shared objects made of the sources below a directory, as tests ask for them: each once.

    Args:
        sources: where they are.
        room: a directory for what is made; that of a session, so that its tests share them.
    """

    def __init__(self, sources: Path, room: Path) -> None:
        self._sources = sources
        self._room = room
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
            self._made[key] = compile_shared_object(source, output, *flags)
        return self._made[key]
