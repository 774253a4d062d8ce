"""The index names every page, and what `make site` has made is looked through for links that lead nowhere."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs/index.md"
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*/*.md",
        "examples/*/README.md",
        "plugins/**/README.md",
        "benchmarks/README.md",
        "core/README.md",
        "sdk/README.md",
    )
    for path in ROOT.glob(pattern)
    if not path.match("docs/adr/0*")
)


@pytest.fixture(scope="module")
def find_faults() -> Callable[[Path], list[str]]:
    return runpy.run_path(str(ROOT / "docs/site/check.py"))["find_faults"]


def test_the_index_links_each_page_once() -> None:
    links = re.findall(r"\]\(([^)]*)\)", INDEX.read_text())
    linked = [(INDEX.parent / link).resolve() for link in links]

    assert len(PAGES) > 50
    assert sorted(linked) == sorted([*PAGES, ROOT / "docs/structure.md"])


def write_site(folder: Path, page: str, style: str = "") -> None:
    (folder / "pages").mkdir()
    (folder / "pages/one.html").write_text(page)
    (folder / "two.html").write_text('<h1 id="top">Two</h1><p><a name="old-place"></a></p>')
    (folder / "style.css").write_text(style)


@pytest.mark.parametrize(
    "page",
    [
        '<link href="../style.css"><a href="../two.html#top">2</a><a href="../two.html#old-place">2</a>',
        '<a href="#here">here</a><p id="here"></p><a href="https://example.org/x#y">elsewhere</a>',
        '<img src="../two.html"><a href="mailto:a@example.org">us</a>',
    ],
)
def test_links_that_lead_somewhere_are_none(
    find_faults: Callable[[Path], list[str]], tmp_path: Path, page: str
) -> None:
    write_site(tmp_path, page, 'a { background: url("two.html") }')

    assert find_faults(tmp_path) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="two.html">2</a>', "pages/one.html: links to two.html, which is not there"),
        ('<a href="../pages">folder</a>', "pages/one.html: links to ../pages, which is not there"),
        ('<a href="#x">x</a>', "pages/one.html: links to #x, and there is no such place on that page"),
        (
            '<a href="../two.html#x">x</a>',
            "pages/one.html: links to ../two.html#x, and there is no such place on that page",
        ),
        ('<img src="no.svg">', "pages/one.html: links to no.svg, which is not there"),
        (
            '<script src="https://example.org/x.js"></script>',
            "pages/one.html: fetches https://example.org/x.js",
        ),
        ('<link href="//example.org/x.css">', "pages/one.html: fetches //example.org/x.css"),
    ],
)
def test_each_fault_of_a_page_is_found(
    find_faults: Callable[[Path], list[str]], tmp_path: Path, page: str, fault: str
) -> None:
    write_site(tmp_path, page)

    assert find_faults(tmp_path) == [fault]


@pytest.mark.parametrize(
    "style", ["a { src: url(https://example.org/f) }", '@import "https://example.org/f";']
)
def test_what_a_style_fetches_from_elsewhere_is_found(
    find_faults: Callable[[Path], list[str]], tmp_path: Path, style: str
) -> None:
    write_site(tmp_path, "", style)

    assert find_faults(tmp_path) == ["style.css: fetches https://example.org/f"]
