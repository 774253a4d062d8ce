"""Unpacked environments: once per content, whoever asks, however the last attempt ended."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from tritonpy_backend_python import store
from tritonpy_backend_python.store import EnvironmentStore, StoreFailure, default_store

UNPACK_ELSEWHERE = """
import sys
from pathlib import Path
from tritonpy_backend_python.store import EnvironmentStore

print(EnvironmentStore(Path(sys.argv[1])).unpack(Path(sys.argv[2])))
"""


@pytest.fixture
def pack(tmp_path: Path):
    """Make an archive with these texts in it."""

    def pack(name: str = "env.tar.gz", **texts: str) -> Path:
        source = tmp_path / "source"
        shutil.rmtree(source, ignore_errors=True)
        for path, text in {"bin_tool": "tool", "bin_python3": "python", **texts}.items():
            file = source / path.replace("_", "/", 1)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        archive = tmp_path / name
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(source, ".")
        return archive

    return pack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "environments"


@pytest.fixture
def unpacked_count(caplog):
    caplog.set_level(logging.INFO, "tritonpy.backend.python")
    return lambda: sum(record.message.startswith("unpacking") for record in caplog.records)


def test_what_is_in_the_archive_lies_under_its_hash(pack, root):
    archive = pack(bin_tool="works")

    environment = EnvironmentStore(root).unpack(archive)

    assert environment == root / hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (environment / "bin" / "tool").read_text() == "works"


def test_a_second_load_and_a_copy_under_another_name_use_what_is_there(pack, root, tmp_path, unpacked_count):
    archive = pack()
    first = EnvironmentStore(root).unpack(archive)
    copy = shutil.copy(archive, tmp_path / "copy.tgz")

    assert EnvironmentStore(root).unpack(archive) == first
    assert EnvironmentStore(root).unpack(copy) == first

    assert unpacked_count() == 1


def test_an_archive_is_hashed_again_only_when_it_has_changed(pack, root, monkeypatch):
    hashed = []
    file_digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, name: hashed.append(file.name) or file_digest(file, name)
    )
    archive = pack(bin_tool="old")
    first = EnvironmentStore(root).unpack(archive)
    EnvironmentStore(root).unpack(archive)
    assert len(hashed) == 1
    found = archive.stat()

    archive = pack(bin_tool="new")
    os.utime(archive, ns=(found.st_atime_ns, found.st_mtime_ns))  # its time alone does not tell
    second = EnvironmentStore(root).unpack(archive)

    assert len(hashed) == 2
    assert first != second
    assert (second / "bin" / "tool").read_text() == "new"
    assert (first / "bin" / "tool").read_text() == "old"  # workers may still run in it


def test_loads_at_once_in_one_server_unpack_once(pack, root, unpacked_count):
    archive = pack(lib_big=os.urandom(500_000).hex())
    start = threading.Barrier(8)
    environments = []

    def load() -> None:
        start.wait()
        environments.append(EnvironmentStore(root).unpack(archive))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(environments) == 8
    assert len(set(environments)) == 1
    assert unpacked_count() == 1


def test_servers_that_load_at_once_unpack_once(pack, root):
    archive = pack(lib_big=os.urandom(500_000).hex())
    command = [sys.executable, "-c", UNPACK_ELSEWHERE, str(root), str(archive)]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    environments = {server.communicate(timeout=60)[0].strip() for server in servers}

    assert [server.returncode for server in servers] == [0, 0, 0]
    [environment] = environments
    assert (Path(environment) / "bin" / "tool").read_text() == "tool"
    assert not list(root.glob("*.partial"))


@pytest.mark.parametrize("left", ["partial", "renamed", "half a record"])
def test_what_a_killed_server_left_is_done_anew(pack, root, left, unpacked_count):
    archive = pack(bin_tool="whole")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    half = root / (f"{digest}.partial" if left == "partial" else digest)
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "tool").write_text("half")
    (half / "bin" / "other").write_text("left")
    if left == "half a record":
        (root / f"{digest}.json").write_text('{"location": "')

    environment = EnvironmentStore(root).unpack(archive)

    assert (environment / "bin" / "tool").read_text() == "whole"
    assert not (environment / "bin" / "other").exists()
    assert not list(root.glob("*.partial"))
    assert unpacked_count() == 1


def test_an_environment_somebody_deleted_is_unpacked_again(pack, root):
    archive = pack()
    environment = EnvironmentStore(root).unpack(archive)
    shutil.rmtree(environment)

    assert (EnvironmentStore(root).unpack(archive) / "bin" / "tool").exists()


# As conda-pack's: told by nothing but its own place.
CONDA_UNPACK = """
import os, sys
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(os.path.join(here, "prefix"), "a") as file:
    file.write(here + "\\n")
"""


def add_python(archive: Path) -> Path:
    """Put a `bin/python` into an archive: a link to the one that runs the tests."""
    source = archive.parent / "source"
    (source / "bin" / "python").symlink_to(sys.executable)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, ".")
    return archive


def test_conda_unpack_runs_once_and_at_the_final_place(pack, root):
    archive = add_python(pack(**{"bin_conda-unpack": CONDA_UNPACK}))

    for _ in range(2):
        environment = EnvironmentStore(root).unpack(archive)

    assert (environment / "prefix").read_text() == f"{environment}\n"


def test_a_cache_that_was_moved_is_not_trusted_with_prefixes_of_its_former_place(pack, root, tmp_path):
    archive = add_python(pack(**{"bin_conda-unpack": CONDA_UNPACK}))
    EnvironmentStore(root).unpack(archive)
    moved = root.rename(tmp_path / "moved")

    environment = EnvironmentStore(moved).unpack(archive)

    assert (environment / "prefix").read_text() == f"{environment}\n"


def test_a_conda_unpack_that_fails_is_quoted_and_leaves_nothing(pack, root):
    archive = add_python(pack(**{"bin_conda-unpack": "import sys; sys.exit('no prefix')"}))

    with pytest.raises(StoreFailure, match=r"bin/conda-unpack failed with status 1: no prefix"):
        EnvironmentStore(root).unpack(archive)

    assert not [path for path in root.iterdir() if path.is_dir() and path.name != "hashes"]


def test_what_is_no_archive_is_refused_by_name_and_leaves_nothing(root, tmp_path):
    archive = tmp_path / "env.tar.gz"
    archive.write_text("hello")

    with pytest.raises(StoreFailure) as refused:
        EnvironmentStore(root).unpack(archive)

    assert str(refused.value) == f"{archive} cannot be unpacked: it is neither a tar nor a zip archive"
    assert not [path for path in root.iterdir() if path.is_dir() and path.name != "hashes"]


def test_an_archive_that_changes_under_our_hands_is_refused(pack, root, monkeypatch):
    archive = pack()
    unpack = store.unpack

    def unpack_and_touch(source: Path, target: Path) -> None:
        unpack(source, target)
        os.utime(source, (0, 0))

    monkeypatch.setattr(store, "unpack", unpack_and_touch)

    with pytest.raises(StoreFailure, match="it was changed while it was read"):
        EnvironmentStore(root).unpack(archive)


def test_a_cache_that_cannot_be_written_names_the_variable_for_another(pack, tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(
        StoreFailure, match=r"\(environment variable TRITONPY_CACHE_DIR names another place\)"
    ):
        EnvironmentStore(tmp_path / "file" / "environments").unpack(pack())


def test_the_cache_is_where_the_variable_says_or_in_the_home_directory(pack, tmp_path, monkeypatch):
    archive = pack()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRITONPY_CACHE_DIR", raising=False)
    at_home = default_store().unpack(archive)
    monkeypatch.setenv("TRITONPY_CACHE_DIR", str(tmp_path / "there"))
    there = default_store().unpack(archive)

    assert at_home.parent == tmp_path / "home" / ".cache" / "tritonpy" / "environments"
    assert there.parent == tmp_path / "there" / "environments"
    assert json.loads(there.with_suffix(".json").read_text())["archive"] == str(archive)


def test_without_a_home_directory_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("TRITONPY_CACHE_DIR", raising=False)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(store.Path, "home", no_home)

    with pytest.raises(StoreFailure, match="set environment variable TRITONPY_CACHE_DIR"):
        default_store()
