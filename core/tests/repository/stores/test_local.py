from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tritonpy.errors import Internal, Unavailable
from tritonpy.repository.stores.local import LocalStore


def test_models_are_directories_and_links_to_them(tmp_path: Path) -> None:
    for name in ("a", "B", "b", "with space", "x.onnx", ".hidden", "warmup"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").write_text("a file")
    (tmp_path / "linked").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")

    assert LocalStore(str(tmp_path)).model_names() == [
        "B",
        "a",
        "b",
        "linked",
        "warmup",
        "with space",
        "x.onnx",
    ]


def test_a_name_that_no_client_can_say_is_left_out_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
    (tmp_path / "a").mkdir()
    store = LocalStore(str(tmp_path))

    with caplog.at_level(logging.WARNING):
        names = [store.model_names() for _ in range(3)]

    assert names == [["a"]] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"ignore model directory 'caf\\udce9' of {tmp_path}, whose name is not UTF-8"
    ]


def test_no_root_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(Internal, match="failed to stat file : there is no such model repository"):
        LocalStore("").model_names()
    assert LocalStore("").look("a") is None


def test_a_file_system_that_is_not_mounted_any_more_is_no_repository_without_models(tmp_path: Path) -> None:
    with TemporaryDirectory(dir="/dev/shm") as elsewhere:
        mounted = Path(elsewhere)
        (mounted / "m").mkdir()
        (tmp_path / "empty").mkdir()
        assert mounted.stat().st_dev != tmp_path.stat().st_dev
        root = tmp_path / "root"
        root.symlink_to(mounted)
        store = LocalStore(str(root))
        assert store.model_names() == ["m"]

        root.unlink()
        root.symlink_to(tmp_path / "empty")
        with pytest.raises(Unavailable, match="is empty and on another device than before"):
            store.model_names()
        root.unlink()
        root.symlink_to(mounted)
        (mounted / "m").rmdir()

        assert store.model_names() == []
