from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonpy.fingerprint import read_fingerprint


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


@pytest.fixture
def deep_tree(tmp_path: Path) -> Iterator[int]:
    """Directories in each other, more than functions can call each other; yields how many."""
    paths = [str(tmp_path)]
    for _ in range(1500):
        paths.append(f"{paths[-1]}/d")
        os.mkdir(paths[-1])
    yield 1500
    for path in reversed(paths[1:]):
        os.rmdir(path)


def test_a_tree_of_any_depth_is_seen_to_its_end(tmp_path: Path, deep_tree: int) -> None:
    assert len(read_fingerprint(tmp_path)) == deep_tree


def test_links_from_everywhere_to_everywhere_are_followed_once(tmp_path: Path) -> None:
    for level in range(25):  # 2^25 ways lead to the last one
        (tmp_path / f"{level}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"{level}" / name).symlink_to(tmp_path / f"{level + 1}")
    (tmp_path / "25").mkdir()
    (tmp_path / "25/file").write_text("")

    first = read_fingerprint(tmp_path)

    assert len([path for path, _, _ in first if path.endswith("file")]) == 1
    assert read_fingerprint(tmp_path) == first


def test_pipes_and_sockets_are_looked_at_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert [path for path, _, _ in read_fingerprint(tmp_path)] == ["pipe"]
