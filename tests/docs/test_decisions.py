"""Pages in docs/adr are short, and each has a number of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs/adr").glob("0*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_is_a_page_of_sixty_lines_at_most(page: Path) -> None:
    lines = page.read_text().splitlines()

    assert lines[0].startswith(f"# {page.name[:4]} ")
    assert {"## Context", "## Decision"} <= set(lines)
    assert len(lines) <= 60


def test_numbers_are_given_once() -> None:
    numbers = [page.name[:4] for page in PAGES]

    assert len(numbers) > 20
    assert sorted(set(numbers)) == numbers
