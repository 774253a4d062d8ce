"""What type checkers say of models: `typing_tests/` holds code that must, and code that must not, pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import triton_python_backend_utils as pb_utils
import tritonpy_model

DIRECTORY = Path(__file__).parents[1] / "typing_tests"
ROOT = Path(__file__).parents[4]
PROGRAMS = sorted(path.name for path in DIRECTORY.glob("*.py"))


def found() -> dict[str, set[tuple[int, str]]]:
    """Lines and kinds of the errors that mypy finds, by file, as strictly as on our own code."""
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=pyproject.toml", "--no-pretty", str(DIRECTORY)],
        cwd=ROOT,  # where `make lint` keeps what it has found out about numpy
        env={**os.environ, "MYPYPATH": str(Path(pb_utils.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    errors: dict[str, set[tuple[int, str]]] = {name: set() for name in PROGRAMS}
    for line in result.stdout.splitlines():
        if match := re.match(r"(.+\.py):(\d+): error: .*\[(.+)\]$", line):
            errors[Path(match[1]).name].add((int(match[2]), match[3]))
    assert result.stderr == ""
    return errors


def expected(program: str) -> set[tuple[int, str]]:
    lines = (DIRECTORY / program).read_text().splitlines()
    return {
        (number, kind)
        for number, line in enumerate(lines, start=1)
        if "# E: " in line
        for kind in line.partition("# E: ")[2].split(", ")
    }


@pytest.mark.timeout(300)  # it reads all of numpy the first time
def test_mypy_finds_the_mistakes_and_nothing_else() -> None:
    # One test for all: two that run at the same time would lock each other's cache.
    assert found() == {program: expected(program) for program in PROGRAMS}


def test_there_are_mistakes_to_find() -> None:
    assert len(expected("mistakes.py")) >= 20
    assert {program for program in PROGRAMS if expected(program)} == {"mistakes.py"}


@pytest.mark.parametrize("package", [pb_utils, tritonpy_model])
def test_the_packages_say_that_they_are_typed(package: object) -> None:
    assert (Path(package.__file__).parent / "py.typed").is_file()  # type: ignore[attr-defined]
