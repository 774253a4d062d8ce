"""Every name of `triton_python_backend_utils`, called with usual and with odd arguments.

`surface.jsonl` has a line for each call: the call, what comes of it in Triton, and what does in ours where
that is another thing. Left out is what ends Triton's process: `set_release_flags` and `is_cancelled` of a
request made by hand, `Tensor.from_dlpack` of a numpy array, and all that its server refuses.
"""

from __future__ import annotations

import json
from pathlib import Path

AT_ONCE = 100
RECORDED = [json.loads(line) for line in (Path(__file__).parent / "surface.jsonl").read_text().splitlines()]


def test_calls_have_the_outcome_that_is_recorded(server):
    found = []
    for first in range(0, len(RECORDED), AT_ONCE):
        found += server.ask("surface.outcomes", [call for call, *_ in RECORDED[first : first + AT_ONCE]])

    expected = [outcomes[-1] if server.is_ours else outcomes[0] for _, *outcomes in RECORDED]
    assert dict(zip(_calls(), found, strict=True)) == dict(zip(_calls(), expected, strict=True))


def _calls() -> list[str]:
    return [call for call, *_ in RECORDED]
