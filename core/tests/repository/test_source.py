from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.repository.layout import ModelKey
from tritonpy.repository.repositories import FoundModel
from tritonpy.repository.source import fetch_source, lay_out_source, relative_path
from tritonpy.store import LocalFiles
from tritonpy.temporary import TemporaryDirectories


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("file:1/model.py", "1/model.py"),
        ("file:1/./a/../model.py", "1/model.py"),
        ("file:config.pbtxt", "config.pbtxt"),
        ("file:1/..b", "1/..b"),
        ("file:..b/c", "..b/c"),
    ],
)
def test_a_path_is_what_follows_the_prefix(key: str, path: str) -> None:
    assert relative_path(key) == path


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("1/model.py", "unrecognized load parameter '1/model.py'"),
        ("file:../x", "normalized path '../x' must stay within model directory."),
        ("file:1/../../x", "must stay within model directory."),
        ("file:..", "must stay within model directory."),
        ("file:/../etc/passwd", "must stay within model directory."),
        ("file:/", "expected the path of a file"),
        ("file:", "expected the path of a file"),
        ("file:1/", "expected the path of a file"),
        ("file:.", "expected the path of a file"),
        ("file:1/x\0y", "expected the path of a file"),
    ],
)
def test_a_path_that_is_none_or_leads_out_is_refused(key: str, problem: str) -> None:
    with pytest.raises(InvalidArg) as error:
        relative_path(key)

    assert problem in str(error.value)


@pytest.mark.parametrize(
    "files",
    [
        {"file:1/model.py": b"x", "file:../x": b"x"},
        {"file:1": b"a file", "file:1/model.py": b"and a directory"},
        {"file:1/" + "x" * 300: b"a name that no file system takes"},
    ],
)
def test_files_that_cannot_be_laid_out_leave_nothing_behind(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = TemporaryDirectories(tmp_path)
    monkeypatch.setattr("tritonpy.repository.source.OF_THIS_PROCESS", directories)

    with pytest.raises(InvalidArg):
        lay_out_source("m", "{}", files)

    (own,) = tmp_path.iterdir()
    assert list(own.iterdir()) == []


def test_files_need_a_configuration() -> None:
    with pytest.raises(InvalidArg, match="'config' must be specified for model file override"):
        lay_out_source("m", None, {"file:1/model.py": b"x"})


class OnceFetched:
    """A store whose files are gone as soon as they were fetched."""

    root = "s3://bucket"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fetch(self, name: str) -> LocalFiles:
        own = self._directory / "own"
        own.mkdir()
        return LocalFiles(own / name, frozenset(), is_temporary=True)


def test_copies_that_cannot_be_read_are_not_left_behind(tmp_path: Path) -> None:
    found = FoundModel(ModelKey("m"), OnceFetched(tmp_path), frozenset())  # type: ignore[arg-type]  # all that is asked

    with pytest.raises(FileNotFoundError):
        fetch_source(found, None)

    assert list(tmp_path.iterdir()) == []
