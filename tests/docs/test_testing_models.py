"""The files on the pages about Python models, written where they say, pass their own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import load_python_model

ROOT = Path(__file__).parent.parent.parent
HOW_TO = ROOT / "docs/how-to"
SDK = (ROOT / "sdk/README.md").read_text()
_FILE = re.compile(r"^```(?:python|protobuf)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_files(page: str, folder: Path) -> list[str]:
    """Write the files of a page, each of which begins with its path; returns the paths."""
    written = []
    for path, content in _FILE.findall((HOW_TO / page).read_text()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
        written.append(path)
    return written


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    written = write_files("test-a-python-model.md", tmp_path)

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "no_proxy": "*"},
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "8 passed" in result.stdout
    assert sum(path.startswith("tests/") for path in written) == 4


def test_the_example_of_the_sdk_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = ModelRepository(tmp_path / "models")
    config = 'backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: -1 }'
    code = (
        "from tritonpy_model import batched\n"
        "class TritonPythonModel:\n"
        "    execute = batched(lambda self, inputs: {'OUT': inputs['IN']})\n"
    )
    repository.python("echo", code, config + 'output { name: "OUT" data_type: TYPE_FP32 dims: -1 }')
    [example] = re.findall(r"```python\n(from tritonpy_sdk.testing import load_python.*?)```", SDK, re.DOTALL)
    monkeypatch.chdir(tmp_path)

    exec(example)

    assert capsys.readouterr().out == "[1. 2. 3.]\n"


def test_arrays_in_arrays_out_serves_as_the_page_says(tmp_path: Path) -> None:
    write_files("serve-a-python-model.md", tmp_path)

    with load_python_model(tmp_path / "models/scores") as model:
        together = model.infer_batch([{"X": [[1, 2, 3, 4]]}, {"X": [[0, 0, 0, 0], [4, 3, 2, 1]]}])

    assert [outputs["SCORE"].shape for outputs in together] == [(1, 2), (2, 2)]
    np.testing.assert_allclose(together[1]["SCORE"].sum(axis=1), 1)


def test_ragged_inputs_come_as_the_page_says(tmp_path: Path) -> None:
    write_files("serve-a-python-model.md", tmp_path)

    with load_python_model(tmp_path / "models/tokens") as model:
        short, long = model.infer_batch([{"TOKENS": [[1, 2]]}, {"TOKENS": [[1, 2, 3]]}])

    assert short["MEAN"].tolist() == [[1.5]]
    assert long["MEAN"].tolist() == [[2]]
