from __future__ import annotations

import os
from pathlib import Path

import pytest
from tritonpy.repository.fingerprint import read_fingerprint


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/model.py").write_text("one")
    (tmp_path / "config.pbtxt").write_text("backend")
    return tmp_path


def touch(path: Path, seconds: int = 1_000_000) -> None:
    os.utime(path, (seconds, seconds))


def test_nothing_done_is_no_change(model: Path) -> None:
    assert read_fingerprint(model) == read_fingerprint(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: (model / "1/model.py").write_text("longer"),
        lambda model: touch(model / "config.pbtxt"),
        lambda model: (model / "1/weights.bin").write_bytes(b""),
        lambda model: (model / "config.pbtxt").unlink(),
        lambda model: (model / "1/model.py").rename(model / "1/other.py"),
        lambda model: (model / "2").mkdir(),
        lambda model: (model / "1/a/b").mkdir(parents=True),
    ],
    ids=["content", "time", "new file", "removed file", "renamed file", "new version", "deep directory"],
)
def test_a_change_shows(model: Path, change: object) -> None:
    before = read_fingerprint(model)

    change(model)  # type: ignore[operator]

    assert read_fingerprint(model) != before


@pytest.mark.parametrize("path", ["1/__pycache__/model.pyc", ".git/HEAD", "1/.model.py.swp", "__pycache__/x"])
def test_what_tools_write_by_themselves_does_not_show(model: Path, path: str) -> None:
    before = read_fingerprint(model)

    (model / path).parent.mkdir(parents=True, exist_ok=True)
    (model / path).write_text("x")

    assert read_fingerprint(model) == before


def test_links_are_followed_and_circles_end(model: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "weights.bin").write_bytes(b"one")
    (model / "1/linked").symlink_to(elsewhere)
    (model / "1/circle").symlink_to(model)
    (model / "1/dangling").symlink_to(model / "nowhere")
    before = read_fingerprint(model)

    (elsewhere / "weights.bin").write_bytes(b"other")

    assert read_fingerprint(model) != before


def test_a_directory_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert read_fingerprint(tmp_path / "nowhere") == frozenset()
