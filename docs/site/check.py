"""Check a built site: each link of its own leads somewhere, and nothing is fetched from elsewhere.

Sphinx has resolved the links between pages. This looks at what it made of them: also at the
parts that the theme adds, at files that pages link to, and at places on pages.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The names of places on a page, where it links to, and what a browser fetches to show it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places = set[str]()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element tells."""
        values = {name: value for name, value in attrs if value is not None}
        self.places.update(values[name] for name in ("id", "name") if name in values)
        if "src" in values:
            self.fetched.append(values["src"])
        if "href" in values:
            (self.links if tag == "a" else self.fetched).append(values["href"])


def find_faults(site: Path) -> list[str]:
    """Name each link that leads nowhere and whatever pages and styles fetch from elsewhere, a line each."""
    pages = {path.resolve(): _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        faults += [f"{here}: fetches {url}" for url in page.fetched if _is_elsewhere(url)]
        for url in {url: None for url in (*page.links, *page.fetched) if not _is_elsewhere(url)}:
            parts = urlsplit(url)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.is_file():
                faults.append(f"{here}: links to {url}, which is not there")
            elif place and target in pages and place not in pages[target].places:
                faults.append(f"{here}: links to {url}, and there is no such place on that page")
    for path in site.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", path.read_text()):
            faults.append(f"{path.relative_to(site)}: fetches {url}")
    return faults


def _is_elsewhere(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc or parts.scheme)


if __name__ == "__main__":
    if found := find_faults(Path(sys.argv[1])):
        sys.exit("\n".join(found))
