"""Another allocator than the system's: found, put in place once, and inherited by those who can use it.

A copy of some other library stands for the allocator, so that none needs to be installed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Never

import pytest
from tritonpy.cli import malloc
from tritonpy.cli.malloc import (
    LIBRARY_VARIABLE,
    MallocUnavailable,
    find_library,
    keep_freed_memory,
    use_allocator,
)
from tritonpy_sdk.testing import ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")

GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tunes glibc")


class Executed(Exception):
    """The process would have been replaced."""


def execute(program: str, arguments: list[str], variables: Mapping[str, str]) -> Never:
    raise Executed(program, arguments, variables)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """What passes for jemalloc: the C++ library of this machine, or whichever comes first, under its name."""
    maps = Path("/proc/self/maps").read_text()
    (source, *_) = re.findall(r"(/\S*/lib(?:m|pthread|dl|c)[.-]\S*)$", maps, re.MULTILINE)
    path = tmp_path / "lib" / "libjemalloc.so.2"
    path.parent.mkdir()
    path.write_bytes(Path(source).read_bytes())
    return path


def replaced(library: Path, **variables: str) -> tuple[str, list[str], Mapping[str, str]]:
    """What the process would be replaced with."""
    with pytest.raises(Executed) as executed:
        use_allocator(
            "jemalloc", environ={"LD_LIBRARY_PATH": str(library.parent), **variables}, execute=execute
        )
    program, arguments, environ = executed.value.args
    return program, arguments, environ


def test_the_same_program_is_started_again_with_the_library_first(library: Path) -> None:
    program, arguments, environ = replaced(library, OTHER="kept")

    assert program == sys.executable
    assert arguments[1:] == sys.orig_argv[1:]
    assert environ["LD_PRELOAD"] == environ[LIBRARY_VARIABLE] == str(library)
    assert environ["OTHER"] == "kept"


@pytest.mark.parametrize("separator", [":", " "])
def test_what_was_preloaded_already_stays(library: Path, separator: str) -> None:
    before = separator.join(["/ops/one.so", "/ops/two.so"])

    _, _, environ = replaced(library, LD_PRELOAD=before)

    assert environ["LD_PRELOAD"] == f"{library}:/ops/one.so:/ops/two.so"


def test_a_process_that_has_it_goes_on(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc, "_is_loaded", lambda path: path == library)

    use_allocator("jemalloc", environ={"LD_LIBRARY_PATH": str(library.parent)}, execute=execute)


def test_a_library_that_the_linker_ignores_is_refused_instead_of_tried_for_ever(library: Path) -> None:
    with pytest.raises(MallocUnavailable, match="was put into LD_PRELOAD, but the dynamic linker did not"):
        use_allocator(
            "jemalloc",
            environ={"LD_LIBRARY_PATH": str(library.parent), LIBRARY_VARIABLE: str(library)},
            execute=execute,
        )


def test_a_library_of_another_machine_is_passed_over(library: Path) -> None:
    other = bytearray(library.read_bytes())
    other[18] ^= 1
    library.write_bytes(other)

    with pytest.raises(MallocUnavailable, match="for this machine"):
        _found_in(library.parent)


def _found_in(directory: Path) -> Path:
    return find_library("jemalloc", {"LD_LIBRARY_PATH": str(directory)})


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc, "_linker_cache", lambda: "")
    monkeypatch.setattr(malloc, "_DIRECTORIES", ())


@pytest.mark.parametrize(
    ("name", "package"), [("tcmalloc", "libtcmalloc-minimal4"), ("jemalloc", "libjemalloc2")]
)
def test_an_allocator_that_is_missing_is_named_with_its_package(name: str, package: str) -> None:
    with pytest.raises(MallocUnavailable, match=rf"--malloc={name}: found no .+apt-get install {package}\)"):
        find_library(name, {})


def test_the_cache_of_the_linker_is_searched(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = (
        f"2 libs found\n\tlibjemalloc.so.2 (libc6) => /nowhere/x\n\tlibjemalloc.so.2 (libc6,x) => {library}\n"
    )
    monkeypatch.setattr(malloc, "_linker_cache", lambda: cache)

    assert find_library("jemalloc", {}) == library


def test_elsewhere_than_on_linux_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(MallocUnavailable, match="--malloc=jemalloc works on Linux only"):
        use_allocator("jemalloc", environ={}, execute=execute)


def test_a_server_started_with_it_runs_with_it_and_is_the_same_process(library: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with ServerProcess(
        f"--model-repository={tmp_path}/models",
        "--model-control-mode=explicit",
        "--malloc=jemalloc",
        environment={**os.environ, "LD_LIBRARY_PATH": str(library.parent)},
    ) as server:
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        environ = Path(f"/proc/{server.process.pid}/environ").read_text().split("\0")

    assert str(library) in maps
    assert f"LD_PRELOAD={library}" in environ
    assert server.process.returncode == 0


def test_a_server_whose_allocator_is_missing_ends_with_status_one_before_anything_starts(
    tmp_path: Path,
) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tritonpy.cli import malloc, main\n"
            "malloc._linker_cache = lambda: ''\n"
            "malloc._DIRECTORIES = ()\n"
            f"raise SystemExit(main.main(['serve', '--malloc=tcmalloc', '--model-repository={tmp_path}']))",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 1
    assert "apt-get install libtcmalloc-minimal4" in result.stderr
    assert "Started" not in result.stderr


# Each round takes and frees the buffers of four requests at once, as a busy server does.
ROUNDS = """
import resource, sys
from tritonpy.cli.malloc import keep_freed_memory

told = keep_freed_memory()

def round():
    blocks = [b"x" * (1 << 20) for _ in range(4)]
    del blocks

for _ in range(5):
    round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    round()
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_OF_ALL_ROUNDS = 20 * 4 * (1 << 20) // os.sysconf("SC_PAGE_SIZE") if sys.platform == "linux" else 0


# Calls on threads that hold more or less already: some of them fill a heap of 64 MiB up to its end.
CALLS_ON_THREADS = """
import ctypes, resource, threading
from tritonpy.cli.malloc import keep_freed_memory

keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
pages = []

def call():
    blocks = [libc.malloc(8 << 20) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, 8 << 20)
    for block in reversed(blocks):
        libc.free(block)

def run(held):
    for _ in range(held):
        libc.malloc(1 << 20)
    call()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(4):
        call()
    pages.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

for held in range(0, 64, 4):
    thread = threading.Thread(target=run, args=(held,))
    thread.start()
    thread.join()
print(max(pages))
"""
PAGES_OF_A_CALL = 3 * (8 << 20) // os.sysconf("SC_PAGE_SIZE") if sys.platform == "linux" else 0


def touched_pages(**variables: str) -> tuple[bool, int]:
    """Whether the allocator was told, and the pages that the system had to give in all rounds."""
    environ = {key: value for key, value in os.environ.items() if "MALLOC" not in key and "LD_" not in key}
    result = subprocess.run(
        [sys.executable, "-c", ROUNDS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**environ, **variables},
    )
    told, pages = result.stdout.split()
    return told == "True", int(pages)


@GLIBC
def test_buffers_of_the_next_requests_are_those_of_the_last() -> None:
    told, pages = touched_pages()

    assert told
    assert pages < PAGES_OF_ALL_ROUNDS // 20


@GLIBC
def test_a_call_on_a_thread_gets_the_memory_of_the_last_one_whatever_the_thread_holds() -> None:
    environ = {key: value for key, value in os.environ.items() if "MALLOC" not in key and "LD_" not in key}
    command = [sys.executable, "-c", CALLS_ON_THREADS]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ)

    assert int(result.stdout) < PAGES_OF_A_CALL // 4


@GLIBC
@pytest.mark.parametrize(
    "variables",
    [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}],
)
def test_an_allocator_that_was_tuned_by_hand_is_left_alone(variables: dict[str, str]) -> None:
    told, pages = touched_pages(**variables)

    assert not told
    assert pages > PAGES_OF_ALL_ROUNDS // 4


def test_elsewhere_than_on_linux_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")

    assert not keep_freed_memory({})
