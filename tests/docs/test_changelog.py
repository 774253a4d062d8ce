"""Fragments in changelog.d are called as towncrier expects: it leaves out any other without a word."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_fragment_has_a_topic_and_a_kind_that_is_shown() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = {kind["directory"] for kind in settings["type"]}
    folder = ROOT / settings["directory"]
    fragments = {path.name for path in folder.iterdir()} - {"README.md", *settings["ignore"]}

    wrong = [name for name in fragments if name.split(".")[1:] not in [[kind, "md"] for kind in kinds]]

    assert wrong == []


def test_the_changelog_has_a_place_for_the_next_release() -> None:
    assert "<!-- towncrier release notes start -->" in (ROOT / "CHANGELOG.md").read_text()
