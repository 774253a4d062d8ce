from __future__ import annotations

import logging
import os
import subprocess
import sys
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


def test_a_model_that_may_not_be_looked_at_is_not_gone() -> None:
    """Polling would unload it; so it is loaded, which tells the reason, or goes on serving."""
    script = (
        "import os, sys\n"
        "from tritonpy.repository.repositories import Repositories\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "look = Repositories([sys.argv[1]]).open().look()\n"
        "print(look.refused, look.unread)\n"
        "print({key.name: list(found.fingerprint) for key, found in sorted(look.found.items())})\n"
    )
    with TemporaryDirectory() as elsewhere:  # not `tmp_path`, which is for its user alone
        place = Path(elsewhere)
        place.chmod(0o755)
        (place / "models/good/1").mkdir(parents=True)
        (place / "secret/linked/1").mkdir(parents=True)
        (place / "models/linked").symlink_to(place / "secret/linked")
        (place / "models/dangling").symlink_to("nowhere")
        (place / "secret").chmod(0o000)
        try:
            done = subprocess.run(
                [sys.executable, "-c", script, str(place / "models")],
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            (place / "secret").chmod(0o755)

    assert done.stdout.splitlines() == [
        "{} {}",
        "{'good': [('1', 0, -1)], 'linked': [('', 'Permission denied', -1)]}",
    ], done.stderr
