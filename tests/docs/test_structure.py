"""The map of the code names what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "core/src/tritonpy"


def test_the_page_names_each_module_of_every_folder() -> None:
    page = (ROOT / "docs/structure.md").read_text()
    listed = page[page.index("## Every module") : page.index("## Who may import whom")]
    named: set[str] = set()
    folders: list[str] = []
    for line in listed.splitlines():
        if match := re.match(r"( *)([a-z_0-9]+)(\.py|/) ", line):
            folders[len(match[1]) // 2 :] = [match[2]] if match[3] == "/" else []
            named.add("/".join(folders) + (f"/{match[2]}.py" if match[3] == ".py" else "/__init__.py"))

    assert named == {str(path.relative_to(SOURCE.parent)) for path in SOURCE.rglob("*.py")}


def test_the_map_names_each_folder() -> None:
    page = (ROOT / "docs/structure.md").read_text()
    drawn = page[page.index("  src/tritonpy/") : page.index("  tests/  ")]

    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} <= set(re.findall(r"(\w+)/", drawn))


def test_the_layers_are_those_that_lint_checks() -> None:
    page = (ROOT / "docs/structure.md").read_text()
    drawn = page[page.index("## Who may import whom") :].split("```")[1].strip()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [contract] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]

    layers = [re.split(" {2,}", line)[0].split(" · ") for line in drawn.splitlines()]

    assert layers == [layer.split(" : ") for layer in contract["layers"]]
