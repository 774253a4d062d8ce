"""The strategy of the page forms the batches that its test expects, and so does what the SDK's page shows."""

from __future__ import annotations

import importlib.util
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/write-a-batching-strategy.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_the_tests_of_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(FILES) == {"models/m/batchstrategy.py", "test_batchstrategy.py"}
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    spec = importlib.util.spec_from_file_location("test_batchstrategy", tmp_path / "test_batchstrategy.py")
    assert spec is not None
    assert spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)

    found = [name for name in vars(tests) if name.startswith("test_")]
    assert len(found) == 2
    for name in found:
        getattr(tests, name)()


def test_the_lines_on_the_sdks_page_print_the_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "sdk/README.md").read_text()
    [lines] = re.findall(
        r"^```python\n(from tritonpy_sdk.testing import open_strategy\n.*?)^```", page, re.M | re.S
    )
    (tmp_path / "lines.py").write_text(lines)

    runpy.run_path(str(tmp_path / "lines.py"))

    assert capsys.readouterr().out == "[[32, 64], [16]]\n"
