"""A program in C that uses the library as the driver in Python does; see `csrc/driver`."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tritonpy_abi import build as builder
from tritonpy_sdk.headers import DIRECTORY as HEADERS
from tritonpy_sdk.testing.shared_objects import compile_shared_object, find_compiler

SUBJECTS = ("core", "logs", "metrics", "strategies", "agents", "caches", "backends", "calls", "probe")

_SOURCES = Path(__file__).parent / "csrc/driver"
_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


@dataclass(frozen=True)
class Driver:
    """The program, with the library and a shared object for it."""

    program: Path
    plugin: Path

    def run(self, subject: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, self.plugin, subject],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=os.environ | _OPTIONS,
        )


def make_driver(directory: Path, *flags: str) -> Driver:
    """Compile all of it with these flags; skips where there is no compiler that has them."""
    compiler = find_compiler(".c")
    if compiler is None or find_compiler(".cc") is None:
        pytest.skip("there is no compiler")
    flags = ("-g", "-O1", "-fno-omit-frame-pointer", *flags)
    trial = directory / "trial.c"
    trial.write_text("int main(void) { return 0; }\n")
    command = [*compiler, *flags, str(trial), "-o", str(directory / "trial")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{compiler[0]} does not know what is needed: {shlex.join(flags)}")
    library = builder.build(output=directory / "libtritonserver.so", flags=flags)
    plugin = compile_shared_object(_SOURCES / "plugin.cc", directory / "plugin.so", *flags)
    command = [*compiler, *flags, "-std=c11", "-D_GNU_SOURCE", *_WARNINGS]
    command += [f"-I{HEADERS}", f"-I{builder.SOURCES}", *map(str, sorted(_SOURCES.glob("*.c"))), str(library)]
    command += [f"-Wl,-rpath,{directory}", "-pthread", "-o", str(directory / "driver")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)} failed:\n{done.stderr}"
    return Driver(directory / "driver", plugin)
