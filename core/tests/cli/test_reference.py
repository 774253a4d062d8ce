from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_reference_pages_say_what_the_code_says() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True
    )

    assert (run.returncode, run.stdout + run.stderr) == (0, "")
