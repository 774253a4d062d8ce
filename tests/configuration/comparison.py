"""Where two verdicts on the same model differ, and why they may."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .asking import Verdict

JsonValue = Any  # Any: JSON

RECORDED = Path(__file__).with_name("recorded.json")
_CODE = re.compile(r"^(Unknown|Internal|Not found|Invalid argument|Unavailable|Unsupported|Already exists): ")
_STRINGS_IN_TRITON = {"dim", "device_id"}  # 64-bit integers that it does not turn into numbers


@dataclass(frozen=True)
class Difference:
    """Where the verdicts may differ.

    Attributes:
        name: what is different.
        reason: why.
        real, ours: regular expressions that `<stage> <reason>` of the two match.
        cases: a regular expression that names of cases match.
        what: which attributes of the verdicts may differ.
    """

    name: str
    reason: str
    real: str = ".*"
    ours: str = ".*"
    cases: str = field(default=".*", kw_only=True)
    what: frozenset[str] = field(
        default=frozenset({"http", "grpc", "stage", "reason", "index", "config"}), kw_only=True
    )

    def explains(self, case: str, real: Verdict, ours: Verdict, differing: set[str]) -> bool:
        """Whether this is why the verdicts on a case differ as they do."""
        return (
            differing <= self.what
            and re.fullmatch(self.cases, case) is not None
            and re.fullmatch(self.real, f"{real.stage} {real.reason}", re.DOTALL) is not None
            and re.fullmatch(self.ours, f"{ours.stage} {ours.reason}", re.DOTALL) is not None
        )


def differing(real: Verdict, ours: Verdict, *, ours_is_alone: bool = False) -> set[str]:
    """Which attributes are not equal in meaning; without protocols and index if `ours_is_alone`."""
    found = set()
    if not ours_is_alone:
        found |= {name for name in ("http", "grpc", "index") if getattr(real, name) != getattr(ours, name)}
    if real.stage != ours.stage:
        found.add("stage")
    if not _says_the_same(real.reason, ours.reason):
        found.add("reason")
    if comparable(real.config) != comparable(ours.config):
        found.add("config")
    return found


def _says_the_same(real: str, ours: str) -> bool:
    """Whether ours is the same text, or says more behind it. The real log leaves the code out."""
    return ours.startswith(real) or _CODE.sub("", ours).startswith(_CODE.sub("", real))


def comparable(value: JsonValue, key: str = "") -> JsonValue:
    """A configuration with numbers where the real server writes 64-bit ones as text."""
    if isinstance(value, dict):
        if "zero_data" in value and "name" in value:  # an initial state
            value = value | {"dims": list(map(int, value["dims"]))}
        return {name: comparable(element, name) for name, element in value.items()}
    if isinstance(value, list):
        return [comparable(element, key) for element in value]
    return int(value) if key in _STRINGS_IN_TRITON else value


def read_recorded() -> dict[str, dict[str, Verdict]]:
    """What the real server made of each case when it was last asked, as usual and strict: see `record.py`."""
    recorded: dict[str, dict[str, dict[str, JsonValue]]] = json.loads(RECORDED.read_text())
    return {
        kind: {name: Verdict(**verdict) for name, verdict in verdicts.items()}
        for kind, verdicts in recorded.items()
    }


def write_recorded(verdicts: dict[str, dict[str, Verdict]]) -> None:
    """Keep what the real server made of each case, one case a line."""
    kinds = []
    for kind, of_kind in verdicts.items():
        lines = [f"{json.dumps(name)}: {json.dumps(asdict(verdict))}" for name, verdict in of_kind.items()]
        kinds.append(f"{json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n}")
    RECORDED.write_text("{\n" + ",\n".join(kinds) + "\n}\n")
