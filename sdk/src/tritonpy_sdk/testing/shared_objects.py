"""Compile shared objects for tests: strategies, repository agents, caches."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

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
