"""The builder of the library: what it tells the compiler, and what it says where that goes wrong."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy_abi import build as builder

Compiler = Callable[[str], Path]

# Stands in for a compiler: what follows sees its arguments in "$@" and where to write in $made.
_COMPILER = """#!/bin/sh
for word in "$@"; do last=$word; done
made=$last
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Makes CXX name a shell script that ends with the given lines."""

    def make(lines: str) -> Path:
        program = tmp_path / "compilers" / "c++"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"{_COMPILER}{lines}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        return program

    return make


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_error_says_which_were_sought_and_how_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(builder.NotHere, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang.+apt-get install g"):
        builder.build(output=tmp_path / "lib.so")


@pytest.mark.usefixtures("no_compiler")
def test_only_an_optional_library_may_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--output", str(tmp_path / "lib.so")]

    assert builder.main(output) == 1
    assert builder.main(["--optional", *output]) == 0
    assert capsys.readouterr().err.count("found no C++ compiler") == 2


def test_on_other_systems_the_error_says_that_these_are_files_of_linux(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(builder.NotHere, match="files of Linux, and this is darwin"):
        builder.build(output=tmp_path / "lib.so")


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/opt/gcc-99/bin/g++ -m64")

    with pytest.raises(builder.BuildError, match=r"CXX names the compiler '/opt/gcc-99/bin/g\+\+'"):
        builder.build(output=tmp_path / "lib.so")


def test_an_old_compiler_is_quoted_with_its_first_lines(compiler: Compiler, tmp_path: Path) -> None:
    program = compiler(
        "echo \"c++: error: unrecognized command line option '-std=c++17'\" >&2; seq 500 >&2; exit 1"
    )

    with pytest.raises(builder.BuildError) as caught:
        builder.build(output=tmp_path / "lib.so")

    first, second, *rest = str(caught.value).splitlines()
    assert first.startswith(f"the compiler {program} refused the sources; they need C++17 (GCC 9, Clang 7 or")
    assert second == "c++: error: unrecognized command line option '-std=c++17'"
    assert len(rest) == 12
    assert rest[-1] == "… and 489 more lines"
    assert not (tmp_path / "lib.so").exists()


@pytest.mark.parametrize(("lines", "said"), [("exit 3", "exit status 3"), ("echo no; exit 1", "no$")])
def test_a_compiler_that_says_little_is_quoted_all_the_same(
    compiler: Compiler, tmp_path: Path, lines: str, said: str
) -> None:
    compiler(lines)

    with pytest.raises(builder.BuildError, match=said):
        builder.build(output=tmp_path / "lib.so")


def test_a_program_that_is_no_compiler_is_named(compiler: Compiler, tmp_path: Path) -> None:
    program = compiler("")
    program.write_bytes(b"\x7fELF of another machine")

    with pytest.raises(builder.BuildError, match=r"c\+\+ cannot be run: Exec format error"):
        builder.build(output=tmp_path / "lib.so")


def test_variables_reach_compiler_and_linker(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    compiler(f'echo "$@" >> {calls}; echo made > $made')
    monkeypatch.setenv("CPPFLAGS", "-DONE")
    monkeypatch.setenv("CXXFLAGS", "-O3 '-DTWO=a b'")
    monkeypatch.setenv("LDFLAGS", "-Wl,--as-needed")

    builder.build(output=tmp_path / "lib.so", flags=["-fsanitize=undefined"])

    *compiled, linked = calls.read_text().splitlines()
    assert len(compiled) == sum(name.endswith(".cc") for name in builder.read_sources())
    assert all("-fsanitize=undefined -DONE -O3 -DTWO=a b -c csrc/" in call for call in compiled)
    assert "-fsanitize=undefined -O3 -DTWO=a b csrc-" in linked
    assert linked.index("-Wl,-soname,libtritonserver.so") < linked.index("-Wl,--as-needed")


def test_a_place_that_cannot_be_written_is_named_before_anything_is_compiled(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler("exit 9")
    (tmp_path / "package").write_text("a file")

    with pytest.raises(builder.BuildError, match=r"cannot write .+/lib/x.so: Not a directory") as caught:
        builder.build(output=tmp_path / "package/lib/x.so")

    assert "run this as the user who installed tritonpy-abi" in str(caught.value)
    assert "--output FILE and serve with TRITONPY_ABI_LIBRARY=FILE" in str(caught.value)


def test_nobody_sees_half_a_file_while_two_build(compiler: Compiler, tmp_path: Path) -> None:
    compiler('printf "half " > $made; sleep 0.01; printf "whole" >> $made')
    output = tmp_path / "lib.so"
    output.write_text("old")
    seen = set[str]()
    builds = [threading.Thread(target=builder.build, kwargs={"output": output}) for _ in range(2)]
    for build in builds:
        build.start()
    while any(build.is_alive() for build in builds):
        seen.add(output.read_text())

    assert output.read_text() == "half whole"
    assert seen <= {"old", "half whole"}
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["lib.so"]


def test_what_somebody_edits_meanwhile_is_not_compiled(compiler: Compiler, tmp_path: Path) -> None:
    # It compiles copies, which nobody else knows; the digest is that of the copies.
    compiler("pwd >> " + shlex.quote(str(tmp_path / "directories")) + "; cat digest.inc > $made")
    output = builder.build(output=tmp_path / "lib.so")

    directories = {Path(line) for line in (tmp_path / "directories").read_text().splitlines()}
    assert len(directories) == 1
    assert not directories.pop().is_relative_to(builder.PACKAGE)
    assert output.read_text() == f'"{builder.digest(builder.read_sources())}"\n'


def test_the_digest_changes_with_every_source_and_its_name() -> None:
    sources = {"csrc/a.cc": b"int a;", "csrc/b.h": b"int b;"}

    others = [
        {"csrc/a.cc": b"int a; ", "csrc/b.h": b"int b;"},
        {"csrc/a.cc": b"int a;", "csrc/c.h": b"int b;"},
        {"csrc/a.cc": b"int a;"},
        {"csrc/a.cc": b"int a;csrc/b.h 6\nint b;"},
    ]

    assert len({builder.digest(each) for each in [sources, *others]}) == 5


def test_another_library_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert builder.library() == builder.LIBRARY
    monkeypatch.setenv("TRITONPY_ABI_LIBRARY", str(tmp_path / "lib.so"))
    assert builder.library() == tmp_path / "lib.so"


def _opened_with(library: Path) -> str:
    """What a process says that opens this library."""
    program = "from tritonpy_abi.shim import open_shim; open_shim()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TRITONPY_ABI_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    return done.stderr.strip().rpartition("\n")[2]


def test_a_library_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    assert _opened_with(tmp_path / "none.so").endswith(
        f"TRITONPY_ABI_LIBRARY names {tmp_path / 'none.so'}, and there is no such file"
    )


def test_the_library_holds_the_digest_of_its_sources(library: Path) -> None:
    text = ctypes.CDLL(str(library)).TRITONPY_Sources
    text.restype = ctypes.c_char_p

    assert text().decode() == builder.digest(builder.read_sources())


def test_a_library_of_other_sources_is_an_error_that_names_the_command(library: Path, tmp_path: Path) -> None:
    digest = builder.digest(builder.read_sources()).encode()
    stale = tmp_path / "stale.so"
    stale.write_bytes(library.read_bytes().replace(digest, b"0" * len(digest)))

    assert _opened_with(library) == ""
    assert _opened_with(stale).endswith(
        f"{stale} was compiled from other sources than those in {builder.SOURCES}; compile it anew: "
        f"{sys.executable} -m tritonpy_abi.build --output {stale}"
    )


def test_a_library_that_the_linker_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_text(builder.digest(builder.read_sources()))

    assert f"cannot be opened here: cannot load library '{other}'" in _opened_with(other)
    assert _opened_with(other).endswith(f"{sys.executable} -m tritonpy_abi.build --output {other}")
