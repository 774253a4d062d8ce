"""Names of HTTP headers, as people write them in options."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def is_header_name(text: str) -> bool:
    """Whether HTTP allows it: a token, of one character or more; no pseudo-header such as `:path`."""
    return _TOKEN.fullmatch(text) is not None
