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


def case_summary(rounds: Sequence[Mapping[str, Row]], fields: Sequence[str] = FIELDS) -> dict[str, object]:
    """Return the medians of each server and the ratios for one case."""
    summary: dict[str, object] = {}
    for name in SERVERS:
        rows = [pair[name] for pair in rounds if name in pair]
        if not rows:
            continue
        summary[name] = {field: median(rows, field) for field in fields}
    summary["ratio"] = {field: median_ratio(rounds, field) for field in fields}
    return summary


def header(rate: str = "infer/s", cost: str = "CPU µs/req") -> str:
    """Return the head of the table."""
    return (
        f"{'case':<29} {'':<7} {rate:>9} {'p50 µs':>9} {'p99 µs':>9} {cost:>11}"
        f"   ours/Triton: {rate:>8} {'p99':>6} {'CPU':>6}"
    )


def case_lines(title: str, summary: Mapping[str, Any], fields: Sequence[str] = FIELDS) -> list[str]:
    """Return the lines of the table for one case: one for each server, the ratios at the end of the last.

    Args:
        title: what the case is called.
        summary: what `case_summary` returned.
        fields: the names of rate, p50, p99 and cost in it.
    """
    rate, p50, p99, cost = fields
    lines: list[str] = []
    for name in SERVERS:
        if name in summary:
            numbers = summary[name]
            lines.append(
                f"{title if not lines else '':<29} {name:<7} {number(numbers[rate]):>9}"
                f" {number(numbers[p50]):>9} {number(numbers[p99]):>9} {number(numbers[cost]):>11}"
            )
    ratio = summary["ratio"]
    if len(lines) == len(SERVERS):
        lines[-1] += f"{'':<16} {times(ratio[rate]):>8} {times(ratio[p99]):>6} {times(ratio[cost]):>6}"
    return lines


def number(value: float | None) -> str:
    """Return a number as people read it, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def times(value: float | None) -> str:
    """Return a ratio, or a dash."""
    return "–" if value is None else f"{value:.2f}×"
