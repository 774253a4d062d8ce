"""The example `notebook`: what is stored in it was made by its cells, and they run as its README says."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ..plugins.clean_environment import Environment, clean_variables, make_wheels

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/notebook"
README = (EXAMPLE / "README.md").read_text()
INSTALL_S = 1200
RUN_S = 300
PRINTED = re.compile(
    r"batching (off|on) +p50 +([\d.]+) ms +p99 +[\d.]+ ms +(\d+) digits/s"
    r" +([\d.]+) in a batch +([\d.]+)% right"
)


def read_notebook(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook that hold code."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def check_outputs(cells: list[dict[str, Any]]) -> dict[str, tuple[float, float, float, float]]:
    """Check what all cells printed and drew; p50, rate, mean batch and share that was right, by batching."""
    assert [cell["execution_count"] for cell in cells] == [number for number, _ in zip(count(1), cells)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    printed = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
    assert re.search(r"^9\d\.\d% of 450 digits read right$", printed, re.MULTILINE)
    assert re.search(r"^read (\[[\d ]+\]) written \1$", printed, re.MULTILINE)
    assert re.search(r"^scores \[1, 10\] read (\d) written \1$", printed, re.MULTILINE)
    drawn = [output["data"]["image/png"] for output in outputs if output["output_type"] == "display_data"]
    assert [base64.b64decode(png)[:4] for png in drawn] == [b"\x89PNG"]
    rows = {
        name: (float(p50), float(rate), float(mean), float(right))
        for name, p50, rate, mean, right in PRINTED.findall(printed)
    }
    assert set(rows) == {"off", "on"}
    assert rows["off"][2] == 1  # each request by itself
    assert rows["on"][2] > 1
    assert min(row[3] for row in rows.values()) > 90
    return rows


def test_the_readme_says_what_the_stored_notebook_holds() -> None:
    rows = check_outputs(read_notebook(EXAMPLE / "digits.ipynb"))

    for rate in (rows["on"][1], rows["off"][1]):
        assert f" {rate:.0f} " in README
    for p50 in (rows["on"][0], rows["off"][0]):
        assert f" {p50:.0f}" in README


@pytest.mark.neighbours
@pytest.mark.timeout(INSTALL_S + RUN_S)
def test_the_notebook_runs_as_its_readme_says(tmp_path: Path) -> None:
    install, execute = re.findall(r"^\$ (.*)", README, re.MULTILINE)
    *folders, option, requirements = install.removeprefix("pip install ").split()
    wheelhouse, notebooks = tmp_path / "wheelhouse", tmp_path / "examples/notebook"
    assert option == "-r"
    make_wheels(wheelhouse, *(ROOT / folder for folder in folders))
    environment = Environment(tmp_path / "venv")
    environment.download(*map(str, wheelhouse.iterdir()), option, str(ROOT / requirements))
    shutil.copytree(EXAMPLE, notebooks)

    program, *arguments = execute.split()
    done = subprocess.run(
        [environment.python.with_name(program), *arguments],
        cwd=tmp_path,
        # The kernel is that of the environment, whatever kernels a home directory has.
        env=clean_variables(HOME=str(tmp_path), MPLCONFIGDIR=str(tmp_path), no_proxy="*"),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    check_outputs(read_notebook(notebooks / "digits-anew.ipynb"))
    assert [cell["source"] for cell in read_notebook(notebooks / "digits-anew.ipynb")] == [
        cell["source"] for cell in read_notebook(EXAMPLE / "digits.ipynb")
    ]
