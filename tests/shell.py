"""What pages tell people to type, run as they would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 100


def environment() -> dict[str, str]:
    """Variables with which a shell finds the programs of this environment first."""
    scripts = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "no_proxy": "*"}


def run(command: str, folder: Path, deadline_s: float = DEADLINE_S) -> str:
    """What a command prints that succeeds."""
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
