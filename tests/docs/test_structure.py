"""The map of the code names what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "core/src/tritonpy"


@pytest.mark.parametrize("folder", ["frontends", "frontends/http", "frontends/grpc"])
def test_the_map_names_each_module_of_the_frontends(folder: str) -> None:
    page = (ROOT / "docs/structure.md").read_text()
    drawn = re.split(r"\n##+ ", page[page.index("### Inside the frontends") :])[0]
    http, grpc = drawn.index("\n  http/"), drawn.index("\n  grpc/")
    parts = {"frontends": drawn[:http], "frontends/http": drawn[http:grpc], "frontends/grpc": drawn[grpc:]}

    pattern = "*.py" if folder == "frontends" else "**/*.py"
    named = re.findall(r"\b[a-z_]+\.py\b", parts[folder])

    assert set(named) == {path.name for path in (SOURCE / folder).glob(pattern)} - {"__init__.py"}


def test_the_map_names_each_module_and_package_at_the_top() -> None:
    page = (ROOT / "docs/structure.md").read_text()
    drawn = page[page.index("  src/tritonpy/") : page.index("  tests/  ")]
    there = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "version.py"}
    there |= {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}

    assert there - set(re.findall(r"\b[a-z_]+(?:\.py|/)", drawn)) == set()


def test_the_layers_are_those_that_lint_checks() -> None:
    page = (ROOT / "docs/structure.md").read_text()
    drawn = page[page.index("## Who may import whom") :].split("```")[1].strip()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [contract] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]

    layers = [re.split(" {2,}", line)[0].split(" · ") for line in drawn.splitlines()]

    assert layers == [layer.split(" : ") for layer in contract["layers"]]
