"""JSON for shared objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def json_text(document: Mapping[str, object] | Sequence[object]) -> str:
    """A document as Triton writes it: without spaces, which libraries may compare, and in UTF-8."""
    plain = dict(document) if isinstance(document, Mapping) else document
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
