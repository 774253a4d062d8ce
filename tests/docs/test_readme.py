"""The measured numbers of the README are those of the files it links, and its picture is what comes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
DIGITS = ROOT / "examples/digits"
MEASURED = PAGE[PAGE.index("## Measured") :].split("\n## ")[0]
ROWS = re.findall(r"^\| (HTTP|gRPC), (.*?) \| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|$", MEASURED, re.M)
LOADS = {
    "64 bytes": ("identity_py", 64),
    "1 MiB": ("identity_py", 1 << 20),
    "1,000 strings in upper case": ("strings_py", 20_000),
    "two calls of another model": ("bls_py", 64),
}


def measurements() -> Iterator[tuple[tuple[str, str, int, int], dict[str, Any]]]:
    """Each case of the linked files by protocol, model, clients and bytes; of several the first counts."""
    seen = set()
    for name in re.findall(r"\]\((benchmarks/results/.*?\.json)\)", MEASURED):
        result = json.loads((ROOT / name).read_text())
        assert f"`{result['machine']['commit'][:7]}`" in MEASURED
        assert result["settings"]["rounds"] == 5
        for case in [*result["cases"]["cases"], *result.get("python", {"cases": []})["cases"]]:
            load = case["load"]
            key = (load["protocol"], load["model_name"], load["concurrency"], load["byte_size"])
            if key not in seen:
                seen.add(key)
                yield key, case["summary"]


def test_the_measured_numbers_are_those_of_the_files() -> None:
    found = dict(measurements())
    assert len(ROWS) == len(re.findall(r"^\| (?:HTTP|gRPC)", MEASURED, re.M)) > 5

    for protocol, load, clients, triton, ours, ratio in ROWS:
        model, size = LOADS[load]
        summary = found[protocol.lower(), model, int(clients), size]
        rates = [f"{summary[name]['infer_per_s']:,.0f}" for name in ("triton", "ours")]
        assert [*rates, f"{summary['ratio']['infer_per_s']:.2f}"] == [triton, ours, ratio]

    costs = [found[protocol, "identity_py", 1, 64]["ours"]["server_cpu_us"] for protocol in ("grpc", "http")]
    assert f"{costs[0]:.0f} µs of processor time, {costs[1]:.0f} over HTTP" in " ".join(MEASURED.split())


def test_no_cell_of_what_is_there_and_what_is_not_is_empty() -> None:
    table = PAGE[PAGE.index("| There | Not yet |") :].split("\n\n")[0].splitlines()[2:]

    assert len(table) > 5
    assert [row for row in table if not all(cell.strip() for cell in row.split("|")[1:-1])] == []


@pytest.mark.timeout(180)  # a server and a process of its own
def test_the_picture_is_what_the_server_answers(served: Callable[..., Any], tmp_path: Path) -> None:
    server = served(f"--model-repository={DIGITS / 'models'}")
    drawn = tmp_path / "answers.svg"

    url = f"localhost:{server.ports['HTTPService']}"
    command = [sys.executable, str(DIGITS / "draw.py"), "--url", url, "--output", str(drawn)]
    subprocess.run(command, check=True, timeout=120)

    assert drawn.read_text() == (DIGITS / "answers.svg").read_text()
