from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy.temporary import TemporaryDirectories

HOLDER = """
import sys, time
from pathlib import Path
from tritonpy.temporary import TemporaryDirectories
directories = TemporaryDirectories(Path(sys.argv[1]))
made = directories.make("model-")
(made / "weights").write_text("large")
print(made, flush=True)
if sys.argv[2] == "wait":
    time.sleep(60)
"""


def hold(parent: Path, what: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a directory, and the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(parent), what], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    process.stdout.close()
    return process, Path(line)


def test_each_directory_is_new_and_for_this_user_alone(tmp_path: Path) -> None:
    directories = TemporaryDirectories(tmp_path)

    one, other = directories.make("model-"), directories.make("model-")

    assert one != other
    assert one.parent == other.parent
    for directory in (one, one.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directories.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_before_it_is_asked_for(tmp_path: Path) -> None:
    directories = TemporaryDirectories(tmp_path)

    directories.remove_abandoned()
    directories.close()

    assert list(tmp_path.iterdir()) == []


def test_directories_go_with_their_process(tmp_path: Path) -> None:
    process, made = hold(tmp_path, "end")

    assert process.wait(30) == 0
    assert made.name.startswith("model-")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_another_one_uses_is_not(tmp_path: Path) -> None:
    killed, left = hold(tmp_path, "wait")
    alive, used = hold(tmp_path, "wait")
    (tmp_path / "tritonpy-models-file").write_text("no directory")
    (tmp_path / "tritonpy-models-link").symlink_to(used.parent)
    (tmp_path / "something-else").mkdir()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
        assert (left / "weights").exists()

        TemporaryDirectories(tmp_path).remove_abandoned()

        assert not left.parent.exists()
        assert (used / "weights").read_text() == "large"
        assert {path.name for path in tmp_path.iterdir()} == {
            used.parent.name,
            "tritonpy-models-file",
            "tritonpy-models-link",
            "something-else",
        }
    finally:
        alive.kill()
        alive.wait(30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_directories_of_other_users_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "tritonpy-models-other"
    other.mkdir()
    os.chown(other, 65534, 65534)

    TemporaryDirectories(tmp_path).remove_abandoned()

    assert other.exists()


def test_a_directory_that_somebody_has_removed_is_made_again(tmp_path: Path) -> None:
    directories = TemporaryDirectories(tmp_path)
    first = directories.make("model-")
    first.rmdir()
    first.parent.rmdir()

    assert directories.make("model-").is_dir()
    directories.close()


def test_on_a_disk_without_locks_nothing_is_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    directories = TemporaryDirectories(tmp_path)

    made = directories.make("model-")
    TemporaryDirectories(tmp_path).remove_abandoned()

    assert made.is_dir()
    directories.close()
    assert list(tmp_path.iterdir()) == []
