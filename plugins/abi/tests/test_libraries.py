from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonpy.plugin import NotFound, Unavailable
from tritonpy_abi.build import library
from tritonpy_abi.libraries import Library, open_library
from tritonpy_abi.shim import open_shim

from .conftest import Compiled

PLAIN = "libraries/plain.c"

pytestmark = pytest.mark.skipif(not library().is_file(), reason="the library is not compiled")


def answer(opened: Library) -> int:
    function = opened.function("answer")
    assert function is not None
    return int(open_shim().ffi.cast("int (*)(void)", function)())


def words(opened: Library) -> str:
    """What the library's own error says, if it was made by our functions."""
    shim = open_shim()
    function = opened.function("fail")
    assert function is not None
    error = shim.ffi.cast("TRITONSERVER_Error *(*)(void)", function)()
    with pytest.raises(NotFound) as raised:
        shim.check(error)
    return raised.value.message


def put(source: Path, target: Path) -> Path:
    """Put a new file in the place of another, as `mv` does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target.with_suffix(".new"))
    target.with_suffix(".new").rename(target)
    return target


@pytest.mark.parametrize("needs_the_server", [False, True])
def test_a_library_finds_our_functions_whether_it_names_the_server_or_not(
    compiled: Compiled, needs_the_server: bool
) -> None:
    flags = ["-Wl,--no-as-needed", str(library())] if needs_the_server else []
    path = compiled(PLAIN, *flags)

    opened = open_library(path)

    assert (b"libtritonserver.so\0" in path.read_bytes()) == needs_the_server
    assert words(opened) == "the library's own words"
    assert opened.function("no_such_function") is None


def test_a_file_is_opened_once_whatever_it_is_called(compiled: Compiled, tmp_path: Path) -> None:
    path = put(compiled(PLAIN), tmp_path / "one.so")
    link = tmp_path / "link.so"
    link.symlink_to(path)
    relative = os.path.relpath(path)

    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(open_library, [path, link, relative] * 8))

    assert len({int(open_shim().ffi.cast("intptr_t", found.handle)) for found in opened}) == 1
    assert {found.path for found in opened} == {path}


def test_a_file_that_was_replaced_is_another_library_and_the_first_one_stays(
    compiled: Compiled, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(compiled(PLAIN), tmp_path / "plain.so")
    first = open_library(path)
    put(compiled(PLAIN, "-DANSWER=2"), path)

    with caplog.at_level(logging.INFO):
        second = open_library(path)
        again = open_library(path)

    assert [answer(first), answer(second)] == [1, 2]
    assert again is second
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} has changed since it was opened; the new one is opened from a copy"
    ]
    assert words(second) == "the library's own words"
    assert second.path == path


def test_a_file_that_was_refused_and_then_replaced_is_opened(compiled: Compiled, tmp_path: Path) -> None:
    path = put(compiled("libraries/server.c"), tmp_path / "plain.so")
    with pytest.raises(Unavailable):
        open_library(path)

    opened = open_library(put(compiled(PLAIN), path))

    assert words(opened) == "the library's own words"


def test_a_file_with_the_same_content_is_the_same_library(
    compiled: Compiled, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = compiled(PLAIN), compiled(PLAIN, "-DANSWER=2")
    path = put(one, tmp_path / "plain.so")
    first = open_library(path)
    os.utime(path, ns=(1, 1))
    touched = open_library(path)
    open_library(put(two, path))

    with caplog.at_level(logging.INFO):
        restored = open_library(put(one, path))

    assert touched is first
    assert restored is first
    assert caplog.records == []


WRITE_OVER = """
import logging, os, shutil, sys
from tritonpy_abi.libraries import open_library
path, other = sys.argv[1:]
open_library(path)
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO, stream=sys.stdout)
shutil.copyfile(other, path)
print(open_library(path).path)
sys.stdout.flush()
os._exit(0)  # what was written over is not called again, not even at the end
"""


def test_a_file_that_is_written_over_in_use_is_warned_of(compiled: Compiled, tmp_path: Path) -> None:
    path = put(compiled(PLAIN), tmp_path / "plain.so")

    done = subprocess.run(
        [sys.executable, "-c", WRITE_OVER, str(path), str(compiled(PLAIN, "-DANSWER=2"))],
        capture_output=True,
        text=True,
        check=True,
    )

    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"INFO {path} has changed")
    assert lines[1].startswith(f"WARNING {path} was written over while it was in use")
    assert lines[2] == str(path)


def damaged(path: Path, offset: int, byte: int) -> Path:
    content = bytearray(path.read_bytes())
    content[offset] = byte
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ("missing", "{path}: cannot open shared object file: No such file or directory"),
        ("directory", "{path}: cannot read file data: Is a directory"),
        ("text", "{path}: file too short"),
        ("long text", "{path}: invalid ELF header"),
        ("half", "{path}: file too short"),
        ("undefined", "{path}: undefined symbol: nowhere"),
        (
            "api",
            "{path}: undefined symbol: TRITONSERVER_NotYet; tritonpy-abi knows no TRITONSERVER_NotYet: it is "
            "no function of Triton's API, or of a later one",
        ),
        (
            "needs another",
            "libmissing.so: cannot open shared object file: No such file or directory; {path} needs "
            "libmissing.so: install it, or set LD_LIBRARY_PATH before the server starts",
        ),
        (
            "machine",
            "{path}: cannot open shared object file: No such file or directory; it is made for AArch64, and "
            "this process is x86-64",
        ),
    ],
)
def test_what_cannot_be_opened_is_not_found_with_the_linkers_words(
    compiled: Compiled, tmp_path: Path, made: str, text: str
) -> None:
    path = tmp_path / "plain.so"
    match made:
        case "directory":
            path.mkdir()
        case "text":
            path.write_text("hello\n")
        case "long text":
            path.write_text("hello\n" * 1000)
        case "half":
            path.write_bytes(compiled(PLAIN).read_bytes()[:40])
        case "undefined":
            put(compiled(PLAIN, "-DMISSING=nowhere"), path)
        case "api":
            put(compiled(PLAIN, "-DMISSING=TRITONSERVER_NotYet"), path)
        case "needs another":
            missing = put(compiled(PLAIN, "-Wl,-soname,libmissing.so"), tmp_path / "libmissing.so")
            put(compiled(PLAIN, "-Wl,--no-as-needed", str(missing)), path)
            missing.unlink()
        case "machine":
            if os.uname().machine != "x86_64":
                pytest.skip("this machine is another one itself")
            damaged(put(compiled(PLAIN), path), 18, 183)

    with pytest.raises(NotFound) as raised:
        open_library(path)

    assert raised.value.message == f"unable to load shared library: {text.format(path=path)}"


def refusal(path: Path) -> str:
    """The words for a library that cannot be opened, without those that they all begin with."""
    with pytest.raises(NotFound) as raised:
        open_library(path)
    return raised.value.message.removeprefix("unable to load shared library: ")


def linked(compiled: Compiled, path: Path, *needed: Path) -> Path:
    """A library that needs others, which it finds only by their names."""
    return put(compiled(PLAIN, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", *map(str, needed)), path)


def test_a_file_that_was_cut_off_is_not_opened(library: Path, compiled: Compiled, tmp_path: Path) -> None:
    path = tmp_path / "plain.so"
    content = compiled(PLAIN).read_bytes()
    for byte_size in (1000, len(content) // 2):  # before its dynamic section, and in it or behind
        path.write_bytes(content[:byte_size])

        assert re.fullmatch(
            rf"{path}: file too short; it has {byte_size} bytes of \d+ or more: was it copied to its end\?",
            refusal(path),
        )


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("libdep.so", "needs libdep.so: install it, or set LD_LIBRARY_PATH before the server starts"),
        (
            "libc.musl-x86_64.so.1",
            "was built for musl, as on Alpine, and this process has glibc: build it for glibc",
        ),
    ],
)
def test_a_dependency_that_is_missing_is_named_with_what_needs_it(
    compiled: Compiled, tmp_path: Path, name: str, meaning: str
) -> None:
    dependency = put(compiled(PLAIN, f"-Wl,-soname,{name}"), tmp_path / "elsewhere" / name)
    first = linked(compiled, tmp_path / "first.so", dependency)
    middle = put(
        compiled(PLAIN, "-Wl,--no-as-needed,-soname,libmiddle.so", str(dependency)), tmp_path / "libmiddle.so"
    )
    second = linked(compiled, tmp_path / "second.so", middle, Path(f"-Wl,-rpath,{tmp_path}"))
    missing = f"{name}: cannot open shared object file: No such file or directory; "

    assert refusal(first) == f"{missing}{first} {meaning}"
    assert refusal(second) == f"{missing}a library that {second} needs {meaning}"


def test_a_dependency_that_was_linked_by_its_path_is_told_to_need_a_name(
    compiled: Compiled, tmp_path: Path
) -> None:
    dependency = put(compiled(PLAIN), tmp_path / "libdep.so")
    path = linked(compiled, tmp_path / "plain.so", dependency)
    dependency.unlink()

    assert refusal(path) == (
        f"{dependency}: cannot open shared object file: No such file or directory; {path} needs "
        f"{dependency}, at this place: it had no soname when it was linked with, and so is "
        f"not looked for; build it with -Wl,-soname,libdep.so"
    )


def test_a_dependency_beside_a_library_is_told_how_to_be_found(compiled: Compiled, tmp_path: Path) -> None:
    dependency = put(compiled(PLAIN, "-Wl,-soname,libdep.so"), tmp_path / "libdep.so")
    path = linked(compiled, tmp_path / "plain.so", dependency)

    assert refusal(path) == (
        f"libdep.so: cannot open shared object file: No such file or directory; {path} needs libdep.so, "
        f"which lies beside it, where the linker does not look: link with -Wl,-rpath,'$ORIGIN', or set "
        f"LD_LIBRARY_PATH={tmp_path} before the server starts"
    )


def test_a_library_of_a_newer_system_is_told_as_such(compiled: Compiled, tmp_path: Path) -> None:
    def dependency(version: str) -> Path:
        script = tmp_path / f"{version}.map"
        script.write_text(f"{version} {{ nowhere; }};")
        flags = f"-Wl,-soname,libversioned.so,--version-script={script}"
        return put(compiled(PLAIN, "-Danswer=nowhere", flags), tmp_path / "libversioned.so")

    newer = dependency("GLIBCXX_9.9.9")
    path = put(
        compiled(PLAIN, "-DMISSING=nowhere", str(newer), f"-Wl,-rpath,{tmp_path}"), tmp_path / "plain.so"
    )
    dependency("GLIBCXX_3.4")

    assert refusal(path) == (
        f"{newer}: version `GLIBCXX_9.9.9' not found (required by {path}); it was built on a newer system "
        f"than this one, which has no GLIBCXX_9.9.9: build it on the oldest that it is to run on"
    )


def test_a_file_that_cannot_be_looked_at_is_not_found_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "plain.so"
    path.symlink_to(path)

    with pytest.raises(NotFound) as raised:
        open_library(path)

    assert raised.value.message == (
        f"unable to load shared library: {path}: cannot open shared object file: Too many levels of symbolic "
        f"links"
    )


def test_a_name_that_a_wheel_gave_to_the_server_is_ours_too(compiled: Compiled, tmp_path: Path) -> None:
    names = [f"libtritonserver-{number:08x}.so" for number in (1, 2)]
    wheel = [compiled("libraries/server.c", f"-Wl,-soname,{name}") for name in names]
    real = [put(path, tmp_path / name) for name, path in zip(names, wheel, strict=True)]
    flags = ["-Wl,--no-as-needed", *map(str, real), f"-Wl,-rpath,{tmp_path}"]
    path = compiled(PLAIN, *flags)

    opened = open_library(path)

    assert words(opened) == "the library's own words"
    assert not any(name in Path("/proc/self/maps").read_text() for name in map(str, real))


def test_a_library_with_functions_of_the_api_in_it_is_refused(compiled: Compiled, tmp_path: Path) -> None:
    path = compiled("libraries/server.c")

    with pytest.raises(Unavailable) as raised:
        open_library(path)

    assert raised.value.message == (
        f"{path} has functions of Triton's API from {path} instead of tritonpy's; link it with the server's "
        f"library dynamically, or not at all"
    )


OPEN = """
import ctypes, sys
from tritonpy.plugin import TritonError
from tritonpy_abi.libraries import open_library
path, *before = sys.argv[1:]
for other in before:
    ctypes.CDLL(other)
try:
    open_library(path)
except TritonError as exc:
    print(exc.code.text, exc.message, sep=": ")
"""


def opened_elsewhere(*paths: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *map(str, paths)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_tritons_own_library_is_refused_where_a_plugin_brings_it(compiled: Compiled, tmp_path: Path) -> None:
    name = "libtritonserver.so.2"
    real = put(compiled("libraries/server.c", f"-Wl,-soname,{name}"), tmp_path / name)
    path = compiled(PLAIN, "-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{tmp_path}")

    said = opened_elsewhere(path)

    assert said.startswith("Unavailable: ")
    assert f"{real}" in said


@pytest.mark.parametrize("name", ["libtritonserver.so", "libtritonserver-0a1b2c3d.so"])
def test_tritons_own_library_is_refused_where_it_was_first(
    compiled: Compiled, tmp_path: Path, name: str
) -> None:
    real = put(compiled("libraries/server.c", f"-Wl,-soname,{name}"), tmp_path / name)

    said = opened_elsewhere(compiled(PLAIN), real)

    assert said.startswith(f"Unavailable: Triton's own {real} is loaded in this process")
