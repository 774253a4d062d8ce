"""Settings of Sphinx for the site that `make site` makes of the pages (docs/adr/0024-a-site-by-sphinx.md).

The root of the repository is the folder of the sources, so that links lead from a page to any file, as they
do where the repository is browsed: to another page, or to a copy of the file in the site.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pygments.lexers.dsls import ProtoBufLexer
from pygments.token import Comment

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "tritonpy"
html_title = "tritonpy"
html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
html_extra_path = ["index.html"]
html_static_path = ["static"]
html_css_files = ["wide.css"]

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "core/README.md",
    "docs/**/*.md",
    "docs/*.md",
    "examples/*/README.md",
    "plugins/**/README.md",
    "sdk/README.md",
]
exclude_patterns = [".*", "**/.*", "build", "dist", "**/models", "**/src", "**/tests"]

extensions = ["myst_parser"]
myst_heading_anchors = 6
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]  # for parts of files, which are left out with `…`


class _ConfigLexer(ProtoBufLexer):
    """Protobuf text format, whose comments begin with `#`."""

    tokens = {"root": [(r"#.*", Comment.Single), *ProtoBufLexer.tokens["root"]]} | {
        state: rules for state, rules in ProtoBufLexer.tokens.items() if state != "root"
    }


def _add_lists(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the sections of the index into the sidebar, and a list of the decisions onto their page."""
    if page == "docs/adr/README":
        source[0] += "\n```{toctree}\n:glob:\n:maxdepth: 1\n\n0*\n```\n"
    elif page == root_doc:
        parts = re.split(r"^(## .*)\n", source[0], flags=re.MULTILINE)
        for i in range(2, len(parts), 2):
            pages = "\n".join(re.findall(r"\]\((.*?)\.md\)", parts[i]))
            caption = parts[i - 1].removeprefix("## ")
            parts[i] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n\n"
        parts[0] += "\n```{toctree}\n:hidden:\n\n../README\n```\n\n"
        source[0] = "\n".join(parts)


def setup(app: Sphinx) -> None:
    """Have Sphinx call what is here."""
    app.add_lexer("protobuf", _ConfigLexer)
    app.connect("source-read", _add_lists)
