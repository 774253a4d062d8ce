from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tritonpy.errors import Internal
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
