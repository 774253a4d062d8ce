"""JSON for shared objects."""

from __future__ import annotations

import json
from collections.abc import Mapping


def json_text(document: Mapping[str, object]) -> str:
    """A document as Triton writes it: without spaces, which libraries may compare, and in UTF-8."""
    return json.dumps(dict(document), ensure_ascii=False, separators=(",", ":"))
