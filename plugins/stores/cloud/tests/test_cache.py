from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_store_cloud.cache import KEPT_S, ModelCache
from tritonpy_store_cloud.tree import StoredObject, Tree

from .conftest import Clock


def tree(**tags: str) -> Tree:
    files = {f"1/{name}": StoredObject(f"r/m/1/{name}", tag, 3) for name, tag in tags.items()}
    return Tree(files, frozenset({"1", "2"}))


def bring(cache: ModelCache, wanted: Tree) -> tuple[Path, int]:
    """Fetch a model whose files hold their tags; returns its directory and how many were missing."""
    with cache.fetching("m") as fetch:
        missing = fetch.missing(wanted)
        for part, found in missing.items():
            part.write_text(found.tag)
            fetch.keep(part)
        return fetch.lay_out(wanted), len(missing)


def kept(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("*/*/content/*")))


def test_a_snapshot_holds_files_and_empty_directories(cache: ModelCache) -> None:
    directory, missing = bring(cache, tree(a="x", b="y"))

    assert missing == 2
    assert directory.name == "m"
    assert (directory / "1/a").read_text() == "x"
    assert (directory / "1/b").read_text() == "y"
    assert (directory / "2").is_dir()


def test_the_next_snapshot_is_another_directory_of_the_same_content(cache: ModelCache) -> None:
    first, _ = bring(cache, tree(a="x", b="y"))
    second, missing = bring(cache, tree(a="x", b="z"))

    assert missing == 1
    assert first.parent != second.parent
    assert (first / "1/b").read_text() == "y"
    assert (second / "1/b").read_text() == "z"
    assert (first / "1/a").samefile(second / "1/a")


def test_content_that_the_newest_fetch_has_not_is_not_kept(cache: ModelCache, tmp_path: Path) -> None:
    first, _ = bring(cache, tree(a="x", b="y"))
    bring(cache, tree(a="x"))

    assert kept(tmp_path) == 1
    assert (first / "1/b").read_text() == "y"


def test_a_file_that_a_model_has_written_into_is_copied_again(cache: ModelCache) -> None:
    first, _ = bring(cache, tree(a="x"))
    (first / "1/a").write_text("changed")
    second, missing = bring(cache, tree(a="x"))

    assert missing == 1
    assert (second / "1/a").read_text() == "x"


def test_where_there_are_no_hard_links_files_are_copied(
    cache: ModelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)

    first, _ = bring(cache, tree(a="x"))
    second, missing = bring(cache, tree(a="x"))

    assert missing == 0
    assert (second / "1/a").read_text() == "x"
    assert not (first / "1/a").samefile(second / "1/a")


def test_content_goes_some_minutes_after_the_last_snapshot(
    cache: ModelCache, clock: Clock, tmp_path: Path
) -> None:
    directory, _ = bring(cache, tree(a="x"))
    clock.now = KEPT_S + 1
    cache.sweep()
    while_used = kept(tmp_path)
    (directory / "1/a").unlink()
    (directory / "1").rmdir()
    (directory / "2").rmdir()
    directory.rmdir()
    directory.parent.rmdir()
    cache.sweep()

    assert while_used == 1
    assert kept(tmp_path) == 0


def test_content_of_a_model_that_could_not_be_loaded_is_still_there_soon_after(
    cache: ModelCache, clock: Clock, tmp_path: Path
) -> None:
    directory, _ = bring(cache, tree(a="x"))
    subprocess.run(["rm", "-r", str(directory.parent)], check=True)
    clock.now = KEPT_S - 1
    cache.sweep()

    assert bring(cache, tree(a="x"))[1] == 0


def test_nothing_is_left_of_a_fetch_that_fails(cache: ModelCache, tmp_path: Path) -> None:
    def fail() -> None:
        with cache.fetching("m") as fetch:
            for part in fetch.missing(tree(a="x")):
                part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_left_of_a_directory_that_cannot_be_laid_out(cache: ModelCache, tmp_path: Path) -> None:
    wanted = Tree({"1": StoredObject("r/m/1", "t", 1)}, frozenset({"1"}))

    with pytest.raises(InvalidArg, match="several objects that are one file on this disk"):
        bring(cache, wanted)

    assert list(tmp_path.glob("*/*/snapshots/*")) == []


def test_nothing_is_left_after_close(cache: ModelCache, tmp_path: Path) -> None:
    bring(cache, tree(a="x"))
    cache.close()
    cache.close()

    assert list(tmp_path.iterdir()) == []


def test_a_closed_cache_may_be_used_again(cache: ModelCache) -> None:
    bring(cache, tree(a="x"))
    cache.close()

    assert bring(cache, tree(a="x"))[1] == 1


def test_nothing_is_left_when_the_interpreter_ends(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from tritonpy_store_cloud.cache import ModelCache\n"
        f"cache = ModelCache(Path({str(tmp_path)!r}))\n"
        "with cache.fetching('m'): pass\n"
        f"assert list(Path({str(tmp_path)!r}).iterdir())\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_server_left_is_deleted_and_what_a_running_one_uses_is_not(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from tritonpy_store_cloud.cache import ModelCache\n"
        f"cache = ModelCache(Path({str(tmp_path)!r}))\n"
        "with cache.fetching('m'): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    left = list(tmp_path.iterdir())
    running = ModelCache(tmp_path)
    bring(running, tree(a="x"))
    other = ModelCache(tmp_path)
    bring(other, tree(a="x"))

    assert len(left) == 1
    assert not left[0].exists()
    assert len(list(tmp_path.iterdir())) == 2
    running.close()
    other.close()


def test_a_cache_that_somebody_has_deleted_begins_anew(cache: ModelCache, tmp_path: Path) -> None:
    bring(cache, tree(a="x"))
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    directory, missing = bring(cache, tree(a="x"))

    assert missing == 1
    assert (directory / "1/a").read_text() == "x"
