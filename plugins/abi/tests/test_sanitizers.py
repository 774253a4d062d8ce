"""The library and a shared object under sanitizers, driven by a program in C."""

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

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(240)]

SOURCES = Path(__file__).parent / "csrc/driver"
SUBJECTS = ("core", "logs", "metrics", "strategies", "agents", "caches", "probe")

ADDRESS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    # Plugins are written in C, where an enumeration may hold any number; compilers of C++ take it for an int.
    "-fno-sanitize=enum",
)
THREAD = ("-fsanitize=thread",)
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
OPTIONS = {
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
            env=os.environ | OPTIONS,
        )


def make_driver(directory: Path, sanitizers: tuple[str, ...]) -> Driver:
    """Compile all of it with these flags."""
    compiler = find_compiler(".c")
    if compiler is None or find_compiler(".cc") is None:
        pytest.skip("there is no compiler")
    flags = ("-g", "-O1", "-fno-omit-frame-pointer", *sanitizers)
    probe = directory / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    trial = [*compiler, *flags, str(probe), "-o", str(directory / "probe")]
    tried = subprocess.run(trial, capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"{compiler[0]} has no {sanitizers[0]} here")
    library = builder.build(output=directory / "libtritonserver.so", flags=flags)
    plugin = compile_shared_object(SOURCES / "plugin.cc", directory / "plugin.so", *flags)
    command = [*compiler, *flags, "-std=c11", "-D_GNU_SOURCE", *WARNINGS]
    command += [f"-I{HEADERS}", f"-I{builder.SOURCES}", *map(str, sorted(SOURCES.glob("*.c"))), str(library)]
    command += [f"-Wl,-rpath,{directory}", "-pthread", "-o", str(directory / "driver")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)} failed:\n{done.stderr}"
    return Driver(directory / "driver", plugin)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("address"), ADDRESS)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("thread"), THREAD)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_byte_is_used_that_is_not_there_and_none_is_lost(addresses: Driver, subject: str) -> None:
    done = addresses.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr


@pytest.mark.parametrize("subject", SUBJECTS)
def test_threads_do_not_race(threads: Driver, subject: str) -> None:
    done = threads.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr
    assert "Sanitizer" not in done.stderr


@pytest.mark.parametrize(
    ("mistake", "words"), [("leak", "detected memory leaks"), ("overrun", "heap-buffer-overflow")]
)
def test_the_address_sanitizer_is_awake(addresses: Driver, mistake: str, words: str) -> None:
    done = addresses.run(mistake)

    assert done.returncode != 0
    assert words in done.stderr


def test_the_thread_sanitizer_is_awake(threads: Driver) -> None:
    done = threads.run("race")

    assert done.returncode != 0
    assert "ThreadSanitizer: data race" in done.stderr
