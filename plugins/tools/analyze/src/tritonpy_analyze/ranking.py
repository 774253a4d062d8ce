"""The result of an analysis as text: a ranked table, and what is to be said about it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tritonpy.cli.table import format_table

from tritonpy_analyze.analysis import Analysis, Trial
from tritonpy_analyze.measurement import Window, shown_quantity
from tritonpy_analyze.space import LOAD_SETTINGS, Value, shown_value

_COLUMNS = ("throughput", "latency_p50", "latency_p99", "memory", "cpu", "gpu_memory", "gpu_utilization")


def mean_rows(window: Window) -> float:
    """Rows of an execution, on the average; NaN where nothing was counted."""
    executions = sum(window.batch_sizes.values())
    rows = sum(size * count for size, count in window.batch_sizes.items())
    return rows / executions if executions else math.nan


def varying(analysis: Analysis) -> list[str]:
    """The names of dimensions that have more than one value."""
    return [each.name for each in analysis.space.dimensions if len(each.values) > 1]


def short_names(names: Sequence[str]) -> list[str]:
    """Names of settings, without the model where all have the same."""
    models = {name.partition(".")[0] for name in names if name not in LOAD_SETTINGS}
    return [name.partition(".")[2] if "." in name and len(models) == 1 else name for name in names]


def ranking(analysis: Analysis, count: int) -> str:
    """The best trials as a table.

    Args:
        analysis: with at least one trial that was measured.
        count: of rows.
    """
    names = varying(analysis)
    ranked = [trial for trial in analysis.ranked if not trial.error][:count]
    metrics = list(_COLUMNS[:5])
    metrics += [each for each in _COLUMNS[5:] if any(not math.isnan(t.window.metric(each)) for t in ranked)]
    for metric in (*analysis.goal.weights, *(each.metric for each in analysis.goal.constraints)):
        if metric not in metrics:
            metrics.append(metric)
    header = ["rank", *short_names(names), *metrics, "rows", "note"]
    rows = []
    for place, trial in enumerate(ranked, 1):
        window = trial.window
        values: list[Value] = [trial.choice[name] for name in names]
        mean = mean_rows(window)
        rows.append(
            [
                str(place),
                *map(shown_value, values),
                *(shown_quantity(window.metric(metric), metric) for metric in metrics),
                "" if math.isnan(mean) else f"{mean:.1f}",
                note(analysis, trial),
            ]
        )
    return format_table(header, rows)


def note(analysis: Analysis, trial: Trial) -> str:
    """What is to be known of a trial beside its numbers."""
    parts = ["now"] if trial.is_now else []
    if trial.score.within:
        missed = [each for each in analysis.goal.bounds if each.excess(trial.window) > 0]
        parts.append(f"misses {', '.join(each.metric for each in missed)}" if missed else "nothing answered")
    if trial.verdict is not None and trial.verdict.is_hopeless:
        parts.append(f"stopped after {len(trial.windows)} windows, {trial.verdict.confidence:.1%} sure")
    if trial.window.unanswered:
        parts.append(f"answers {1 - trial.window.metric('unanswered'):.0%} of its rate")
    if trial.window.failed:
        parts.append(f"{trial.window.failed} failed")
    return ", ".join(parts)


def summary(analysis: Analysis) -> list[str]:
    """Lines about the search as a whole."""
    trials = analysis.trials
    failed = [trial for trial in trials if trial.error]
    stopped = [trial for trial in trials if trial.verdict is not None and trial.verdict.is_hopeless]
    line = f"{analysis.point_count} of {analysis.space.size} points tried for {analysis.goal}"
    parts = []
    if analysis.resumed_count:
        parts.append(f"{analysis.resumed_count} of them before")
    if stopped:
        parts.append(f"{len(stopped)} given up early as hopeless")
    if failed:
        parts.append(f"{len(failed)} could not be served")
    lines = [f"{line}; {', '.join(parts)}" if parts else line]
    if analysis.was_interrupted:
        lines.append("interrupted: what was measured is kept, and the same command goes on from there")
    for text in dict.fromkeys(trial.error for trial in failed[:3]):
        lines.append(f"not served: {text}")
    return lines


def gain(analysis: Analysis, start: Trial | None) -> str:
    """What the best has more than the configuration of now; "" where that was not tried."""
    best = analysis.best
    if best is None or start is None or start.error or best is start:
        return ""
    parts = []
    for metric in dict.fromkeys((*analysis.goal.weights, "throughput", "latency_p99")):
        before, after = start.window.metric(metric), best.window.metric(metric)
        if before > 0 and not math.isnan(after):
            parts.append(
                f"{metric} {shown_quantity(before, metric)} → {shown_quantity(after, metric)} "
                f"({after / before - 1:+.0%})"
            )
    return f"against the configuration of now: {', '.join(parts)}"
