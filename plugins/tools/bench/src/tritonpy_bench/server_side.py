"""What a server counted between two looks at its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonpy_bench.measurement import ServerSide
from tritonpy_bench.target import JsonObject, Target

_PHASES = ("queue", "compute_input", "compute_infer", "compute_output")
_CACHE = ("cache_hit", "cache_miss")


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one version of a model at one moment."""

    model: str
    version: str
    numbers: dict[str, int] = field(default_factory=dict)  # by the path of its fields
    batch_sizes: dict[int, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)


def look(target: Target, models: Sequence[tuple[str, str]]) -> list[Counts]:
    """Ask for the counters of models, each by name and version; all versions where that is empty."""
    found = []
    for model, version in models:
        closed = {str(facts["version"]): facts.get("closed", {}) for facts in target.reasons(model, version)}
        for entry in target.statistics(model, version):
            of_version = str(entry.get("version", ""))
            found.append(
                Counts(
                    entry["name"],
                    of_version,
                    dict(_numbers(entry)),
                    _batch_sizes(entry),
                    {reason: int(count) for reason, count in closed.get(of_version, {}).items()},
                )
            )
    return found


def between(before: Sequence[Counts], after: Sequence[Counts]) -> list[ServerSide]:
    """What each version did between two looks; versions that did nothing are left out.

    Counters that went down were begun anew by a reload: then all of the later look is new.
    """
    earlier = {(counts.model, counts.version): counts for counts in before}
    sides = []
    for late in after:
        early = earlier.get((late.model, late.version), Counts(late.model, late.version))
        if any(late.numbers.get(key, 0) < count for key, count in early.numbers.items()):
            early = Counts(late.model, late.version)
        side = _side(early, late)
        if side.success_count or side.fail_count:
            sides.append(side)
    return sides


def _side(early: Counts, late: Counts) -> ServerSide:
    def new(key: str) -> int:
        return late.numbers.get(key, 0) - early.numbers.get(key, 0)

    durations = {}
    for phase in ("success", *_PHASES, *_CACHE):
        if count := new(f"{phase}.count"):
            durations["request" if phase == "success" else phase] = new(f"{phase}.ns") / count / 1000
    return ServerSide(
        late.model,
        late.version,
        new("inference_count"),
        new("execution_count"),
        new("success.count"),
        new("fail.count"),
        durations,
        _less(late.batch_sizes, early.batch_sizes),
        _less(late.closed, early.closed),
    )


def _less(late: dict[Any, int], early: dict[Any, int]) -> dict[Any, int]:
    differences = {key: count - early.get(key, 0) for key, count in late.items()}
    return {key: count for key, count in sorted(differences.items()) if count}


def _numbers(entry: JsonObject) -> list[tuple[str, int]]:
    numbers = [(key, int(entry.get(key, 0))) for key in ("inference_count", "execution_count")]
    for phase, counted in entry.get("inference_stats", {}).items():
        numbers += [(f"{phase}.{unit}", int(counted.get(unit, 0))) for unit in ("count", "ns")]
    return numbers


def _batch_sizes(entry: JsonObject) -> dict[int, int]:
    return {
        int(batch.get("batch_size", 0)): int(batch.get("compute_infer", {}).get("count", 0))
        for batch in entry.get("batch_stats", ())
    }
