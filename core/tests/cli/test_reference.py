from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_reference_pages_say_what_the_code_says() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True
    )

    assert (run.returncode, run.stdout + run.stderr) == (0, "")


@pytest.mark.parametrize(
    "page",
    sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    prose = re.sub(
        r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )  # `[](…)` is also C++
    targets = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", prose)

    assert [target for target in targets if not (page.parent / target).exists()] == []
