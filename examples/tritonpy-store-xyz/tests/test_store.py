"""The store xyz, called as a server calls it, without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
import tritonpy_store_xyz
from tritonpy.plugin import Internal, InvalidArg, NotFound, Store, StoreOptions
from tritonpy_sdk.testing import StoreConformance
from tritonpy_store_xyz import store_open


def pack(archive: Path, **models: str) -> None:
    """Make an archive of models, whose weights are these texts, or put another in its place."""
    files: dict[str, bytes] = {}
    for name, weights in models.items():
        files[f"{name}/config.pbtxt"] = b'backend: "identity"'
        files[f"{name}/1/weights"] = weights.encode()
    pack_files(archive, files)


def pack_files(archive: Path, files: Mapping[str, bytes]) -> None:
    part = archive.with_suffix(".part")
    with ZipFile(part, "w") as file:
        for path, content in files.items():
            file.writestr(path, content)
    part.rename(archive)


class TestRules(
    StoreConformance,
    store=tritonpy_store_xyz,
    wrong_roots=["xyz://"],
    lost_root="xyz:///no/such/models.zip",
    has_any_names=True,
):
    """What all stores have in common; a test that fails says what to do."""

    def make_root(self, directory: Path) -> str:
        return f"xyz://{directory}/models.zip"

    def put(self, root: str, files: Mapping[str, bytes]) -> None:
        pack_files(Path(root.partition("://")[2]), files)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "models.zip"
    pack(path, one="1", two="2")
    return path


@pytest.fixture
def store(archive: Path) -> Iterator[Store]:
    opened = open_store(archive)
    yield opened
    opened.stop()
    opened.close()


def open_store(archive: Path) -> Store:
    return store_open(f"xyz://{archive}", StoreOptions({}))


def test_a_model_is_brought_to_the_disk(store: Store) -> None:
    files = store.fetch("one")

    assert store.model_names() == ["one", "two"]
    assert files.directory.name == "one"
    assert (files.directory / "1/weights").read_text() == "1"
    assert files.fingerprint == store.look("one") != store.look("two")


def test_a_changed_model_looks_otherwise_and_what_was_fetched_stays(store: Store, archive: Path) -> None:
    before, fetched = store.look("one"), store.fetch("one")

    pack(archive, one="changed")

    assert before != store.look("one")
    assert (fetched.directory / "1/weights").read_text() == "1"
    assert (store.fetch("one").directory / "1/weights").read_text() == "changed"
    assert (store.model_names(), store.look("two")) == (["one"], None)


def test_a_model_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(NotFound, match=r"model 'three' not found in model repository xyz://.*models\.zip"):
        store.fetch("three")


def test_an_archive_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no archive")

    for name in ("text.zip", "none.zip"):
        with pytest.raises(Internal, match=rf"model repository xyz://.*{name} cannot be read: "):
            open_store(tmp_path / name).model_names()


def test_a_root_without_a_path_is_refused() -> None:
    with pytest.raises(InvalidArg, match="expected the path of an archive"):
        store_open("xyz://", StoreOptions({}))


def test_nothing_is_left_on_the_disk(archive: Path) -> None:
    store = open_store(archive)
    directory = store.fetch("one").directory

    store.close()

    assert not directory.exists()
