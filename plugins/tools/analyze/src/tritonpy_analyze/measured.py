"""What an analysis has measured of a model, for `corectl explain`: its trials beside what is served now."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonpy.cli.explain_findings import Finding
from tritonpy.cli.table import format_table
from tritonpy.errors import InvalidArg

from tritonpy_analyze.analysis import Trial, trial_of
from tritonpy_analyze.goal import Goal
from tritonpy_analyze.measurement import Window, shown_quantity
from tritonpy_analyze.sameness import Served
from tritonpy_analyze.space import LOAD_SETTINGS, Choice, Value, shown_choice

JsonObject = dict[str, Any]  # Any: JSON

CHECKPOINT = "checkpoint.jsonl"
_METRICS = ("throughput", "latency_p50", "latency_p99", "memory")
_MOST_ROWS = 8
_NOTABLE = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """The trials of an analysis under one load.

    Attributes:
        path: of its checkpoint.
        day: when the last trial was written, as a local time.
        asked: the models that the load was for.
        trial_count: all that were measured, under any load.
        load: that of the trials, such as `concurrency=8`.
        load_trial_count: those of them under this load.
        now: what was measured of the configuration that is served now; None if it was not tried.
        others: others under this load, the best throughput first; by what they change in that configuration.
        better: of those the one with the best throughput whose p99 is no longer; None if there is none.
        why_not: why nothing is told of what is served now; "" if something is.
    """

    path: Path
    day: str
    asked: Sequence[str]
    trial_count: int
    load: str
    load_trial_count: int
    now: Window | None
    others: Sequence[tuple[str, Window]]
    better: tuple[str, Window] | None = None
    why_not: str = ""

    def json(self) -> JsonObject:
        """All of it as JSON."""
        return {
            "file": str(self.path),
            "models": list(self.asked),
            "trials": self.trial_count,
            "load": self.load,
            "trials_of_load": self.load_trial_count,
            "why_not_now": self.why_not or None,
            "now": _metrics(self.now) if self.now is not None else None,
            "changes": [{"change": text, "metrics": _metrics(window)} for text, window in self.others],
        }


def _metrics(window: Window) -> JsonObject:
    found = {metric: window.metric(metric) for metric in _METRICS}
    return {metric: None if math.isnan(value) else value for metric, value in found.items()}


def read_measured(
    folder: Path, model: str, served: Callable[[str], JsonObject], clients: int = 0
) -> Measured | None:
    """What an analysis has measured of a model; None if it was of others, or measured nothing.

    Args:
        folder: in which it wrote its checkpoint.
        model: the name.
        served: gives the configuration that a model has now; empty for one that is not loaded.
        clients: requests at once that the model has now, of which trials are told if there are any; 0 if
            nobody knows.

    Raises:
        InvalidArg: the file is no checkpoint.
        OSError: it cannot be read.
    """
    path = folder / CHECKPOINT
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]  # the last may be cut off
    if not whole:  # it was begun, and nothing is in it yet
        return None
    try:
        subject, *found = map(json.loads, whole)
        if model not in subject["models"]:
            return None
        trials = [trial_of(each, Goal()) for each in found]
        asked: list[str] = subject["asked"]
        began: dict[str, JsonObject] = {**subject["models"], **subject.get("settled", {})}
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidArg(f"'{path}' is no checkpoint of corectl analyze: {exc}") from exc
    trials = [trial for trial in trials if trial.is_within]  # all requests were answered
    if not trials:
        return None
    state = Served(began, served)
    same = [trial for trial in trials if not state.differing(trial)] if not state.unloaded else []
    load = _load(trials, same, clients)
    of_load = [trial for trial in trials if _parts(trial.choice)[0] == load]
    same_of_load = [trial for trial in of_load if trial in same]
    # If possible as it was loaded and not as a point.
    now = _of(model, max(same_of_load, key=lambda each: each.is_now)) if same_of_load else None
    changed = [(trial, state.changes(trial.choice)) for trial in of_load if trial not in same]
    is_one = len(began) == 1
    found_others = [
        (len(changes), shown_choice(changes, without_model=is_one), _of(model, trial))
        for trial, changes in changed
        if changes
    ]
    better = _better(found_others, now) if now is not None else None
    return Measured(
        path,
        time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime)),
        asked,
        len(trials),
        shown_choice(load, without_model=False),
        len(of_load),
        now,
        _told(found_others, better),
        better,
        "" if now is not None else _why_not(state, of_load),
    )


def _parts(choice: Choice) -> tuple[dict[str, Value], dict[str, Value]]:
    """The load of a choice, and its settings."""
    load = {name: value for name, value in choice.items() if name in LOAD_SETTINGS}
    return load, {name: value for name, value in choice.items() if name not in load}


def _load(trials: Sequence[Trial], same: Sequence[Trial], clients: int) -> dict[str, Value]:
    """That of which is told: the one that the model has, or where what is served now does the most."""

    def rank(trial: Trial) -> tuple[bool, bool, float]:
        return (
            bool(clients) and _parts(trial.choice)[0].get("concurrency") == clients,
            trial in same,
            trial.window.metric("throughput"),
        )

    return _parts(max(trials, key=rank).choice)[0]


def _of(model: str, trial: Trial) -> Window:
    return trial.window.parts.get(model, trial.window)


def _why_not(state: Served, of_load: Sequence[Trial]) -> str:
    """Why none of the trials under this load is of what is served now."""
    if state.unloaded:
        return f"{' and '.join(state.unloaded)} {'is' if len(state.unloaded) == 1 else 'are'} not loaded now."
    elsewhere = [state.differing(trial) for trial in of_load if not state.changes(trial.choice)]
    if elsewhere:
        fields = ", ".join(min((len(each), each) for each in elsewhere)[1])
        return f"What is served now differs from what was analyzed, in {fields}, and was not tried."
    return "What is served now was not tried under this load."


def _better(found: Sequence[tuple[int, str, Window]], now: Window) -> tuple[str, Window] | None:
    """The one that does notably more, of those whose p99 is not notably longer."""
    better = [
        (text, window)
        for _, text, window in found
        if window.metric("throughput") > now.metric("throughput") * (1 + _NOTABLE)
        and window.metric("latency_p99") <= now.metric("latency_p99") * (1 + _NOTABLE)
    ]
    return max(better, key=lambda each: each[1].metric("throughput"), default=None)


def _told(
    found: Sequence[tuple[int, str, Window]], better: tuple[str, Window] | None
) -> list[tuple[str, Window]]:
    """Those of which is told: the better one, the best ones, and those that change a single setting."""
    if not found:
        return []
    best = [
        max(found, key=lambda each: each[2].metric("throughput")),
        min(found, key=lambda each: each[2].metric("latency_p99")),
    ]
    single = sorted((each for each in found if each[0] == 1), key=lambda each: -each[2].metric("throughput"))
    rest = sorted(found, key=lambda each: -each[2].metric("throughput"))
    chosen = dict([better]) if better is not None else {}
    for _, text, window in [*best, *single, *rest[:3]]:
        if len(chosen) < _MOST_ROWS:
            chosen.setdefault(text, window)
    return sorted(chosen.items(), key=lambda each: -each[1].metric("throughput"))


def measured_text(found: Measured) -> str:
    """The trials as a table."""
    rows = []
    if found.now is not None:
        rows.append(["as it is", *_cells(found.now, None)])
    rows += [[text, *_cells(window, found.now)] for text, window in found.others]
    title = (
        f"What corectl analyze measured of {', '.join(found.asked)} at {found.load}, "
        f"{found.trial_count} trials in all, {found.day}"
    )
    lines = [title, format_table(["change", *_METRICS], rows)]
    if found.now is None:
        lines.append(found.why_not)
    return "\n".join(lines)


def _cells(window: Window, now: Window | None) -> list[str]:
    cells = []
    for metric in _METRICS:
        text = shown_quantity(window.metric(metric), metric)
        before = now.metric(metric) if now is not None else math.nan
        if before > 0 and metric in ("throughput", "latency_p99"):
            text += f" ({window.metric(metric) / before - 1:+.0%})"
        cells.append(text)
    return cells


def measured_findings(found: Measured) -> list[Finding]:
    """What follows from them: a change that was measured to be better in every way, or that there is none."""
    if found.now is None or not found.others:
        return []
    if found.better is None:
        return [
            Finding(
                finding=f"Of {found.load_trial_count} trials of corectl analyze at {found.load}, none did "
                f"over {_NOTABLE:.0%} more inferences a second with a p99 at most {_NOTABLE:.0%} longer.",
                advice="",
            )
        ]
    text, window = found.better
    before, after = (
        f"{each.metric('throughput'):.4g} inferences a second and a p99 of "
        f"{shown_quantity(each.metric('latency_p99'), 'latency_p99')}"
        for each in (found.now, window)
    )
    return [
        Finding(
            finding=f"corectl analyze measured {after} with {text}, instead of {before}, at {found.load}.",
            advice=f"Serve it with {text}.",
        )
    ]
