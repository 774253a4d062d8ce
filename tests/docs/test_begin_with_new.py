"""The pages for authors of plugins begin with `corectl new`, and with what it says comes next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tritonpy.cli.main import main

PAGES = Path(__file__).parents[2] / "docs/how-to"


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("write-a-backend", "backend"),
        ("write-a-batching-strategy", "strategy"),
        ("write-a-cache", "cache"),
        ("write-a-frontend", "frontend"),
        ("write-a-repository-agent", "agent"),
        ("write-a-store", "store"),
        ("custom-operators", "ops"),
    ],
)
def test_the_page_begins_with_what_the_command_says(
    page: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = (PAGES / f"{page}.md").read_text().partition("\n## Begin\n")[2].partition("\n## ")[0]
    new, *steps = re.findall(r"^\$ (.*)", begin, re.MULTILINE)
    monkeypatch.chdir(tmp_path)

    assert new.startswith(f"corectl new {kind} ")
    assert main(shlex.split(new)[1:]) == 0
    assert [f"  {step}" for step in steps] == capsys.readouterr().out.partition("Next:\n")[2].splitlines()
