"""Compile the library that shared objects compiled for Triton find their functions in.

    python -m tritonpy_abi.build

Needs a C++17 compiler: `$CXX`, or `c++`, `g++` or `clang++`, which is told `$CPPFLAGS`, `$CXXFLAGS` and
`$LDFLAGS` too. Uses nothing but the standard library, since it also runs while the distribution is built.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PACKAGE = Path(__file__).parent
SOURCES = PACKAGE / "csrc"
LIBRARY = PACKAGE / "lib" / "libtritonserver.so"
SONAME = "libtritonserver.so"
ELSEWHERE = "TRITONPY_ABI_LIBRARY"
"""The variable that names the library where it is not in the package."""

COMPILERS = ("c++", "g++", "clang++")
_SUFFIXES = (".cc", ".h", ".txt", ".map")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread")
_LINK_FLAGS = ("-shared", f"-Wl,-soname,{SONAME}", "-Wl,-z,defs", "-pthread", "-ldl")
_MOST_LINES = 12
"""Of what a compiler says: its first error is what counts."""


class BuildError(Exception):
    """There is no compiler, or it refused; says which and why."""


class NotHere(BuildError):
    """This is no Linux, or it has no compiler: tritonpy-abi is installed without its library."""


def library() -> Path:
    """The file to open: in the package, or where `TRITONPY_ABI_LIBRARY` says."""
    return Path(os.environ.get(ELSEWHERE) or LIBRARY)


def headers() -> Path:
    """The directory of `tritonpy/core.h` and its neighbours.

    In the package, beside it in an unpacked source archive, or in the repository that both are part of.
    """
    places = (PACKAGE / "include", PACKAGE.parents[1] / "include")
    in_repository = PACKAGE.parents[3] / "sdk/src/tritonpy_sdk/include"
    return next((place for place in places if (place / "tritonpy").is_dir()), in_repository)


def find_compiler() -> list[str]:
    """The command of a C++ compiler.

    Raises:
        NotHere: there is none.
        BuildError: CXX names one that is not there.
    """
    if command := shlex.split(os.environ.get("CXX", "")):
        if path := shutil.which(command[0]):
            return [str(Path(path).absolute()), *command[1:]]
        raise BuildError(f"CXX names the compiler {command[0]!r}, and there is no such program")
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise NotHere(
        f"found no C++ compiler ({', '.join(COMPILERS)}, and CXX is not set); "
        f"Debian and Ubuntu: apt-get install g++"
    )


def exported() -> list[str]:
    """The names of Triton's C API, all of them exported by the library."""
    return (SOURCES / "exports.txt").read_text().split()


def read_sources(include: Path | None = None) -> dict[str, bytes]:
    """All that the library is compiled from, by its place below `csrc/` and `include/`."""
    roots = {"csrc": SOURCES, "include": headers() if include is None else include}
    return {
        f"{name}/{file.relative_to(root).as_posix()}": file.read_bytes()
        for name, root in roots.items()
        for file in sorted(root.rglob("*"))
        if file.suffix in _SUFFIXES
    }


def digest(sources: Mapping[str, bytes]) -> str:
    """Tells whether a library was compiled from these sources: it holds the same text."""
    hashed = hashlib.sha256()
    for name, content in sources.items():
        hashed.update(f"{name} {len(content)}\n".encode() + content)
    return hashed.hexdigest()[:16]


def unsupported(sources: Mapping[str, bytes]) -> list[str]:
    """Exported names that only answer that they are not supported: no header declares them."""
    declared = set[str]()
    for name, content in sources.items():
        if name.startswith("include/") or name == "csrc/unsupported.cc":
            declared.update(re.findall(r"\b(TRITON[A-Z]+_\w+)\(", content.decode()))
    return [name for name in sources["csrc/exports.txt"].decode().split() if name not in declared]


def build(include: Path | None = None, output: Path = LIBRARY, flags: Iterable[str] = ()) -> Path:
    """Compile the library, the same bytes from the same sources wherever they are.

    Args:
        include: where the headers are; None for where they usually are.
        output: the file to write; it is replaced in one step.
        flags: further ones for compiler and linker, such as `-fsanitize=address`.

    Raises:
        NotHere: this is no Linux, or there is no compiler.
        BuildError: the compiler refused, or the file cannot be written.
    """
    if not sys.platform.startswith("linux"):
        raise NotHere(f"shared objects compiled for Triton are files of Linux, and this is {sys.platform}")
    compiler = find_compiler()
    _check_writable(output)
    with tempfile.TemporaryDirectory(prefix="tritonpy-abi-") as directory:
        made = _compile(compiler, Path(directory), read_sources(include), list(flags))
        partial = output.with_name(f".{output.name}.{os.getpid()}.{Path(directory).name}")
        try:
            shutil.copy(made, partial)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    return output


def _check_writable(output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output.parent):
            pass
    except OSError as exc:
        raise BuildError(
            f"cannot write {output}: {exc.strerror or exc}; run this as the user who installed tritonpy-abi, "
            f"or choose a file with --output FILE and serve with {ELSEWHERE}=FILE"
        ) from exc


def _compile(compiler: list[str], directory: Path, sources: Mapping[str, bytes], flags: list[str]) -> Path:
    """Compile a copy, which is not edited meanwhile, by relative names: no path gets into the library."""
    for name, content in sources.items():
        copy = directory / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    stubs = "".join(f"UNSUPPORTED({name})\n" for name in unsupported(sources))
    (directory / "unsupported.inc").write_text(stubs)
    (directory / "digest.inc").write_text(f'"{digest(sources)}"\n')
    compiled = [name for name in sources if name.endswith(".cc")]
    objects = [name.replace("/", "-") + ".o" for name in compiled]
    options = [*_FLAGS, "-Iinclude", "-Icsrc", "-I.", f"-ffile-prefix-map={directory}=."]
    options += [*flags, *_variable("CPPFLAGS"), *_variable("CXXFLAGS")]
    commands = [
        [*compiler, *options, "-c", name, "-o", made] for name, made in zip(compiled, objects, strict=True)
    ]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda command: _run(command, directory), commands))
    link = [*compiler, *flags, *_variable("CXXFLAGS"), *objects, *_LINK_FLAGS, *_variable("LDFLAGS")]
    _run([*link, "-Wl,--version-script=csrc/exports.map", "-o", SONAME], directory)
    return directory / SONAME


def _variable(name: str) -> list[str]:
    return shlex.split(os.environ.get(name, ""))


def _run(command: Sequence[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as exc:
        raise BuildError(f"the compiler {command[0]} cannot be run: {exc.strerror or exc}") from exc
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        rest = [f"… and {len(said) - _MOST_LINES} more lines"] if len(said) > _MOST_LINES else []
        raise BuildError(
            f"the compiler {command[0]} refused the sources; they need C++17 (GCC 9, Clang 7 or newer), and "
            f"CXX names another compiler. It says:\n" + "\n".join([*said[:_MOST_LINES], *rest])
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, and say where the library is."""
    parser = argparse.ArgumentParser("python -m tritonpy_abi.build", description="Compile the library.")
    parser.add_argument("--output", type=Path, default=LIBRARY, help="the file to write")
    parser.add_argument("--optional", action="store_true", help="succeed where no compiler is found")
    options = parser.parse_args(arguments)
    try:
        print(build(output=options.output.absolute()))
    except NotHere as exc:
        print(f"tritonpy-abi: {exc}", file=sys.stderr)
        return 0 if options.optional else 1
    except (BuildError, OSError) as exc:
        print(f"tritonpy-abi: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
