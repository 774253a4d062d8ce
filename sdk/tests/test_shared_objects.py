"""Shared objects for tests: compiled once, and taken from earlier sessions where nothing has changed."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from tritonpy_sdk.testing import SharedObjects, find_compiler

pytestmark = pytest.mark.skipif(find_compiler(".c") is None, reason="there is no compiler for C")


class Project:
    """Sources, and sessions that compile them and keep what they make."""

    def __init__(self, root: Path) -> None:
        self.sources = root / "sources"
        self.sources.mkdir()
        self.kept = root / "kept"
        self._root = root
        self._sessions = 0
        self.write("number.h", "#define NUMBER 1")
        self.write("answer.c", '#include "number.h"\nint answer(void) { return NUMBER; }')

    def write(self, name: str, text: str) -> None:
        (self.sources / name).write_text(f"{text}\n")

    def answer(self, *flags: str) -> int:
        """What is compiled says, in a session of its own."""
        self._sessions += 1
        objects = SharedObjects(self.sources, self._root / f"room{self._sessions}", self.kept)
        path = objects("answer.c", *flags)
        assert path.is_relative_to(self._root / f"room{self._sessions}")
        assert objects("answer.c", *flags) == path
        answer: int = ctypes.CDLL(str(path)).answer()
        return answer


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_later_session_takes_what_an_earlier_one_has_made(project: Project) -> None:
    project.answer()
    [kept] = project.kept.iterdir()
    made_at = kept.stat().st_mtime_ns

    assert project.answer() == 1
    assert [each.stat().st_mtime_ns for each in project.kept.iterdir()] == [made_at]


def test_what_differs_in_the_source_a_header_or_a_flag_is_compiled_anew(project: Project) -> None:
    answers = [project.answer()]
    project.write("number.h", "#ifndef NUMBER\n#define NUMBER 2\n#endif")
    answers.append(project.answer())
    answers.append(project.answer("-DNUMBER=3"))
    project.write("answer.c", "int answer(void) { return 4; }")
    answers.append(project.answer())

    assert answers == [1, 2, 3, 4]
    assert len(list(project.kept.iterdir())) == 4


def test_what_the_compiler_refuses_is_told_and_not_kept(project: Project) -> None:
    project.write("answer.c", "int answer(void) { int unused; return 1; }")

    with pytest.raises(RuntimeError, match="unused"):
        project.answer()

    assert not project.kept.exists()
