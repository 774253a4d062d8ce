"""The library made by compilers other than the one at hand, and by all of them without a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy_abi import build as builder
from tritonpy_sdk.testing.shared_objects import find_compiler

from . import clang
from .driver import SUBJECTS, Driver, make_driver

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(600)]

WARNINGS = ("-Wpedantic", "-Wshadow", "-Wconversion", "-Wnon-virtual-dtor", "-Werror")


def test_the_compiler_at_hand_has_nothing_to_say(tmp_path: Path) -> None:
    if find_compiler(".cc") is None:
        pytest.skip("there is no C++ compiler")

    builder.build(output=tmp_path / "lib.so", flags=WARNINGS)


def test_clang_has_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", clang.find())

    builder.build(output=tmp_path / "lib.so", flags=WARNINGS)


@pytest.fixture(scope="module")
def made_by_clang(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", clang.find())
        return make_driver(tmp_path_factory.mktemp("clang"))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_clang_makes_works(made_by_clang: Driver, subject: str) -> None:
    done = made_by_clang.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr


def test_a_shared_object_of_one_compiler_works_with_the_library_of_another(
    made_by_clang: Driver, tmp_path: Path
) -> None:
    # Exceptions pass through both.
    made_here = make_driver(tmp_path)

    done = Driver(made_by_clang.program, made_here.plugin).run("strategies")

    assert (done.returncode, done.stdout) == (0, "strategies: done\n"), done.stderr
