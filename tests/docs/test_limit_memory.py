"""What the page on memory says is what was measured, and what the programs understand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from tritonpy.cli.main import main

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/how-to/limit-memory.md").read_text()
RESULTS = re.findall(r"benchmarks/results/[\w.-]+\.json", PAGE)


def test_the_table_shows_what_the_file_with_the_results_holds() -> None:
    (name,) = set(RESULTS)
    cases = json.loads((ROOT / name).read_text())["cases"]
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \w+ \| \d.*$", PAGE, re.M)
    ]

    assert rows == [
        [
            case["malloc"],
            f"{case['weights_mib']:.0f}",
            *(
                f"{figure:.0f}"
                for figure in (
                    case["idle_mib"],
                    case["resident_mib"][0],
                    case["resident_mib"][9],
                    case["resident_mib"][-1],
                    case["peak_mib"],
                )
            ),
            f"{case['slope_kb']:.0f} KB",
        ]
        for case in cases
    ]
    assert {len(case["resident_mib"]) for case in cases} == {200}


def test_the_command_of_the_page_is_understood(tmp_path: Path) -> None:
    (command,) = re.findall(r"^\$ corectl (serve .*)$", PAGE, re.MULTILINE)
    arguments = shlex.split(command.replace("--model-repository models", f"--model-repository {tmp_path}"))

    assert main([*arguments, "--show-config"]) == 0
