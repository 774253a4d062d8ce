"""Samples of what `docs/reference/what-is-lost.md` says, by the programs that write its tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/what-is-lost.md").read_text()

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.name != "posix", reason="it kills groups of processes"),
]


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, f"benchmarks/{program}", *arguments, "--no-page", "--name="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("rows", ["sigterm,sigkill", "leave,joiner"])
def test_nothing_is_lost_that_need_not_be(rows: str) -> None:
    run("kill_matrix.py", f"--rows={rows}", "--rate=40")


def test_no_request_of_a_sequence_is_misrouted() -> None:
    run("sequences_over_routers.py", "--sequences=60", "--length=8", "--at-a-time=15", "--pause-s=0.2")


def test_the_page_has_what_the_programs_found() -> None:
    tables = re.findall(r"<!-- (.+?): begin -->\n(.*?)<!-- \1: end -->", PAGE, re.DOTALL)

    rows = {name: [line for line in text.splitlines() if line.startswith("|")] for name, text in tables}

    assert {name: len(lines) > 2 for name, lines in rows.items()} == {"kill matrix": True, "sequences": True}
    assert "FAILED" not in PAGE
    assert "| SIGTERM of one of three |" in PAGE
