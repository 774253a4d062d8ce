"""Compile the library that shared objects compiled for Triton find their functions in.

    python -m tritonpy_abi.build

Needs a C++17 compiler: `$CXX`, or `c++`, `g++` or `clang++`. Uses nothing but the standard library, since it
also runs while the distribution is built.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent
SOURCES = PACKAGE / "csrc"
LIBRARY = PACKAGE / "lib" / "libtritonserver.so"
SONAME = "libtritonserver.so"

COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread")
_LINK_FLAGS = ("-shared", f"-Wl,-soname,{SONAME}", "-Wl,-z,defs", "-ldl")


class BuildError(Exception):
    """There is no compiler, or it refused; says which and why."""


def headers() -> Path:
    """Where `tritonpy/core.h` and its neighbours are: in the package, or in the repository it is part of."""
    installed = PACKAGE / "include"
    return installed if installed.is_dir() else PACKAGE.parents[3] / "sdk/src/tritonpy_sdk/include"


def find_compiler() -> list[str]:
    """The command of a C++ compiler.

    Raises:
        BuildError: there is none.
    """
    if command := os.environ.get("CXX"):
        return shlex.split(command)
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise BuildError(
        f"found no C++ compiler ({', '.join(COMPILERS)}, and CXX is not set); "
        f"Debian and Ubuntu: apt-get install g++"
    )


def exported() -> list[str]:
    """The names of Triton's C API, all of them exported by the library."""
    return (SOURCES / "exports.txt").read_text().split()


def unsupported(include: Path) -> list[str]:
    """Those of them that only answer that they are not supported: the headers do not declare them."""
    declared = set[str]()
    for header in sorted((include / "tritonpy").glob("*.h")):
        declared.update(re.findall(r"\b(TRITON[A-Z]+_\w+)\(", header.read_text()))
    declared.update(re.findall(r"\b(TRITON[A-Z]+_\w+)\(", (SOURCES / "unsupported.cc").read_text()))
    return [name for name in exported() if name not in declared]


def build(include: Path | None = None, output: Path = LIBRARY, flags: Iterable[str] = ()) -> Path:
    """Compile the library.

    Args:
        include: where the headers are; None for where they usually are.
        output: the file to write; it is replaced in one step.
        flags: further ones for the compiler, such as `-fsanitize=address`.

    Raises:
        BuildError: this is no Linux, there is no compiler, or it refused.
    """
    if not sys.platform.startswith("linux"):
        raise BuildError(f"shared objects compiled for Triton are files of Linux, and this is {sys.platform}")
    compiler = find_compiler()
    include = headers() if include is None else include
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tritonpy-abi-", dir=output.parent) as directory:
        generated = Path(directory) / "unsupported.inc"
        generated.write_text("".join(f"UNSUPPORTED({name})\n" for name in unsupported(include)))
        made = Path(directory) / SONAME
        _run(
            [
                *compiler,
                *_FLAGS,
                *flags,
                f"-I{include}",
                f"-I{SOURCES}",
                f"-I{directory}",
                *map(str, sorted(SOURCES.rglob("*.cc"))),
                *_LINK_FLAGS,
                f"-Wl,--version-script={SOURCES / 'exports.map'}",
                "-o",
                str(made),
            ]
        )
        made.replace(output)
    return output


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as exc:
        raise BuildError(f"{command[0]} cannot be run: {exc}") from exc
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


def main() -> int:
    """Compile, and say where the library is."""
    try:
        print(build())
    except (BuildError, OSError) as exc:
        print(f"tritonpy-abi: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
