"""The tests of the page do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tritonpy_sdk.testing

PAGE = (Path(__file__).parents[2] / "docs/how-to/test-a-plugin.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
(REPORT,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(folder: Path, test: str) -> tuple[int, str]:
    for path, content in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", test]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


def test_two_lines_are_enough(tmp_path: Path) -> None:
    status, said = run(tmp_path, "tests/test_conformance.py")

    assert status == 0, said
    assert " passed" in said


def test_the_fault_of_the_page_is_named_in_its_words(tmp_path: Path) -> None:
    status, said = run(tmp_path, "test_forgetful.py")
    lines = [line.removeprefix("E").strip() for line in said.splitlines()]

    assert status == 1
    assert "1 failed" in said
    for line in REPORT.splitlines():
        assert any(line in each for each in lines), said


@pytest.mark.parametrize(
    "kit", [name for name in tritonpy_sdk.testing.__all__ if name.endswith("Conformance")]
)
def test_every_kit_is_on_the_page(kit: str) -> None:
    assert f"| `{kit}` |" in PAGE
