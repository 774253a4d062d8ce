"""What `make serve` and `make test` install, and in which order they may be called."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ALL = "--group dev"
SERVING = "--editable core"


def planned(target: str, venv: Path) -> str:
    """The commands that `make` would run, with plain pip."""
    make = ("make", "--dry-run", "--no-print-directory", f"VENV={venv}", "UV=", target)
    return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    venv = tmp_path / "venv"
    venv.mkdir()
    return venv


def test_serving_installs_what_it_needs_and_compiles_nothing(venv: Path) -> None:
    commands = planned("serve", venv)

    assert SERVING in commands
    assert "corectl serve" in commands
    assert ALL not in commands
    assert "tritonpy_abi" not in commands


def test_the_tests_install_the_rest_behind_it(venv: Path) -> None:
    (venv / ".serve-done").touch()

    assert SERVING not in planned("serve", venv)
    assert ALL in planned("test", venv)


def test_serving_needs_nothing_more_where_all_is_installed(venv: Path) -> None:
    stamps = [venv / name for name in (".setup-done", ".serve-done")]

    [touch] = [line for line in planned("setup", venv).splitlines() if line.startswith("touch")]
    assert {str(stamp) for stamp in stamps} == set(touch.split()[1:])
    for stamp in stamps:
        stamp.touch()

    assert SERVING not in planned("serve", venv)
    assert ALL not in planned("test", venv)
