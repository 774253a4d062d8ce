"""Turn measurements into medians, ratios and the table that is printed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SERVERS = ("triton", "ours")
FIELDS = ("infer_per_s", "p50_us", "p99_us", "server_cpu_us")
Row = Mapping[str, Any]  # a measurement as it goes into the JSON file


def median(rows: Sequence[Row], field: str) -> float | None:
    """Return the median of one field over the rows that have it."""
    values = [float(row[field]) for row in rows if row.get(field) is not None]
    return round(statistics.median(values), 2) if values else None


def median_ratio(rounds: Sequence[Mapping[str, Row]], field: str) -> float | None:
    """Return the median over the rounds of ours/Triton.

    The two of one round stand side by side in time, so what disturbs the machine for longer than that cancels
    out; a ratio of two medians would not have that.
    """
    ratios = [
        float(pair["ours"][field]) / float(pair["triton"][field])
        for pair in rounds
        if all(name in pair and pair[name].get(field) for name in SERVERS)
    ]
    return round(statistics.median(ratios), 3) if ratios else None


def case_summary(rounds: Sequence[Mapping[str, Row]]) -> dict[str, object]:
    """Return the medians of each server and the ratios for one case."""
    summary: dict[str, object] = {}
    for name in SERVERS:
        rows = [pair[name] for pair in rounds if name in pair]
        if not rows:
            continue
        summary[name] = {field: median(rows, field) for field in FIELDS}
    summary["ratio"] = {field: median_ratio(rounds, field) for field in FIELDS}
    return summary


HEADER = (
    f"{'case':<22} {'':<7} {'infer/s':>9} {'p50 µs':>9} {'p99 µs':>9} {'CPU µs/req':>11}"
    f"   ours/Triton: {'infer/s':>8} {'p99':>6} {'CPU':>6}"
)


def case_lines(title: str, summary: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table for one case: one for each server, the ratios at the end of the last."""
    lines: list[str] = []
    for name in SERVERS:
        if name in summary:
            numbers = summary[name]
            lines.append(
                f"{title if not lines else '':<22} {name:<7} {number(numbers['infer_per_s']):>9}"
                f" {number(numbers['p50_us']):>9} {number(numbers['p99_us']):>9}"
                f" {number(numbers['server_cpu_us']):>11}"
            )
    ratio = summary["ratio"]
    if len(lines) == len(SERVERS):
        lines[-1] += (
            f"{'':<16} {times(ratio['infer_per_s']):>8} {times(ratio['p99_us']):>6}"
            f" {times(ratio['server_cpu_us']):>6}"
        )
    return lines


def number(value: float | None) -> str:
    """Return a number as people read it, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def times(value: float | None) -> str:
    """Return a ratio, or a dash."""
    return "–" if value is None else f"{value:.2f}×"
