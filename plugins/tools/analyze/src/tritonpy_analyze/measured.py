"""What an analysis has measured of a model, for `corectl explain`: its trials beside what is served now."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonpy.cli.explain_findings import Finding
from tritonpy.cli.table import format_table
from tritonpy.errors import InvalidArg

from tritonpy_analyze.analysis import Trial, trial_of
from tritonpy_analyze.goal import Goal
from tritonpy_analyze.measurement import Window, shown_quantity
from tritonpy_analyze.overrides import current
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
        now: what was measured of the configuration that is served now; None if it was not tried.
        others: others under this load, the best throughput first; by what they change in that configuration.
    """

    path: Path
    day: str
    asked: Sequence[str]
    trial_count: int
    load: str
    now: Window | None
    others: Sequence[tuple[str, Window]]

    def json(self) -> JsonObject:
        """All of it as JSON."""
        return {
            "file": str(self.path),
            "models": list(self.asked),
            "trials": self.trial_count,
            "load": self.load,
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
    try:
        subject, *found = map(json.loads, whole)
        if model not in subject["models"]:
            return None
        trials = [trial_of(each, Goal()) for each in found]
        asked: list[str] = subject["asked"]
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidArg(f"'{path}' is no checkpoint of corectl analyze: {exc}") from exc
    trials = [trial for trial in trials if trial.is_within]  # all requests were answered
    if not trials:
        return None
    now = _now(trials, served)
    load = _load(trials, now, clients)
    of_load = [trial for trial in trials if _parts(trial.choice)[0] == load]
    return Measured(
        path,
        time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime)),
        asked,
        len(trials),
        shown_choice(load, without_model=False),
        _as_it_is(of_load, now, model),
        _others(of_load, now, model),
    )


def _parts(choice: Choice) -> tuple[dict[str, Value], dict[str, Value]]:
    """The load of a choice, and its settings."""
    load = {name: value for name, value in choice.items() if name in LOAD_SETTINGS}
    return load, {name: value for name, value in choice.items() if name not in load}


def _now(trials: Sequence[Trial], served: Callable[[str], JsonObject]) -> dict[str, Value]:
    """The values that the settings of the trials have in what is served now."""
    configs: dict[str, JsonObject] = {}
    values: dict[str, Value] = {}
    for name in dict.fromkeys(name for trial in trials for name in _parts(trial.choice)[1]):
        model, _, setting = name.partition(".")
        if model not in configs:
            configs[model] = served(model)
        values[name] = current(configs[model], setting)
    return values


def _load(trials: Sequence[Trial], now: Mapping[str, Value], clients: int) -> dict[str, Value]:
    """That of which is told: the one that the model has, or where what is served now does the most."""

    def rank(trial: Trial) -> tuple[bool, bool, float]:
        load, settings = _parts(trial.choice)
        return (
            bool(clients) and load.get("concurrency") == clients,
            settings == now,
            trial.window.metric("throughput"),
        )

    return _parts(max(trials, key=rank).choice)[0]


def _of(model: str, trial: Trial) -> Window:
    return trial.window.parts.get(model, trial.window)


def _as_it_is(trials: Sequence[Trial], now: Mapping[str, Value], model: str) -> Window | None:
    """What was measured of what is served now, if possible as it was loaded and not as a point."""
    same = [trial for trial in trials if _parts(trial.choice)[1] == now]
    return _of(model, max(same, key=lambda each: each.is_now)) if same else None


def _others(trials: Sequence[Trial], now: Mapping[str, Value], model: str) -> list[tuple[str, Window]]:
    """What other settings come to: the best ones, and those that change a single setting."""
    found = []
    is_one = len({name.partition(".")[0] for name in now}) == 1
    for trial in trials:
        changed = {name: value for name, value in trial.choice.items() if name in now and value != now[name]}
        if changed:
            found.append((len(changed), shown_choice(changed, without_model=is_one), _of(model, trial)))
    if not found:
        return []
    best = [
        max(found, key=lambda each: each[2].metric("throughput")),
        min(found, key=lambda each: each[2].metric("latency_p99")),
    ]
    single = sorted((each for each in found if each[0] == 1), key=lambda each: -each[2].metric("throughput"))
    rest = sorted(found, key=lambda each: -each[2].metric("throughput"))
    chosen = {text: window for _, text, window in [*best, *single, *rest[:3]][:_MOST_ROWS]}
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
        lines.append("What is served now was not tried under this load.")
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
    rate, p99 = (found.now.metric(metric) for metric in ("throughput", "latency_p99"))
    better = [
        (text, window)
        for text, window in found.others
        if window.metric("throughput") > rate * (1 + _NOTABLE)
        and window.metric("latency_p99") < p99 * (1 + _NOTABLE)
    ]
    if not better:
        return [
            Finding(
                finding=f"Of {found.trial_count} trials of corectl analyze, none at {found.load} did more "
                f"inferences a second with a p99 as short.",
                advice="",
            )
        ]
    text, window = better[0]
    before, after = (
        f"{each.metric('throughput'):.4g} inferences a second and a p99 of "
        f"{shown_quantity(each.metric('latency_p99'), 'latency_p99')}"
        for each in (found.now, window)
    )
    return [
        Finding(
            finding=f"corectl analyze measured {after} with {text}, instead of {before}, at {found.load}.",
            advice="Given again with --apply, it writes what it found best.",
        )
    ]
