"""Every distribution of this repository carries its licence."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = sorted(
    path.parent
    for pattern in ("core", "sdk", "plugins/abi", "plugins/*/*", "examples/*")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_the_licence_goes_into_the_archives(folder: Path) -> None:
    """The text has to lie in the folder itself: archives take in no file from above it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]

    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_there_are_distributions() -> None:
    assert len(DISTRIBUTIONS) > 10
