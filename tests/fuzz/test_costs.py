"""No bytes of strangers cost much more than ordinary ones: work and memory, not time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = {"http": 600, "grpc": 600, "patterns": 1000, "archives": 150, "json": 500}
SEED = 20_261


@pytest.mark.stress
@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is taken from /proc")
@pytest.mark.parametrize("target", CASES)
def test_what_is_sent_costs_no_more_than_ten_times_what_is_ordinary(target: str) -> None:
    program = Path(__file__).with_name("costs.py")
    run = subprocess.run(
        [sys.executable, str(program), target, f"--seed={SEED}", f"--cases={CASES[target]}"],
        capture_output=True,
        text=True,
        timeout=360,
    )

    assert run.returncode == 0, run.stdout + run.stderr
