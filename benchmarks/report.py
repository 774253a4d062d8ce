"""Turn measurements into medians, ratios and the table that is printed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SERVERS = ("triton", "ours", "ours-native", "ours-grpcio")
FIELDS = ("infer_per_s", "p50_us", "p99_us", "server_cpu_us")
Row = Mapping[str, Any]  # a measurement as it goes into the JSON file


def median(rows: Sequence[Row], field: str) -> float | None:
    """Return the median of one field over the rows that have it."""
    values = [float(row[field]) for row in rows if row.get(field) is not None]
    return round(statistics.median(values), 2) if values else None


def median_ratio(rounds: Sequence[Mapping[str, Row]], field: str, name: str = "ours") -> float | None:
    """Return the median over the rounds of one of ours/Triton.

    The two of one round stand side by side in time, so what disturbs the machine for longer than that cancels
    out; a ratio of two medians would not have that.
    """
    ratios = [
        float(row[name][field]) / float(row["triton"][field])
        for row in rounds
        if all(each in row and row[each].get(field) for each in (name, "triton"))
    ]
    return round(statistics.median(ratios), 3) if ratios else None


def case_summary(rounds: Sequence[Mapping[str, Row]], fields: Sequence[str] = FIELDS) -> dict[str, object]:
    """Return the medians of each server and the ratios for one case.

    `ratio` is that of `ours`; that of another one has its name before it.
    """
    summary: dict[str, object] = {}
    for name in SERVERS:
        rows = [row[name] for row in rounds if name in row]
        if rows:
            summary[name] = {field: median(rows, field) for field in fields}
            if name != "triton":
                ratio = {field: median_ratio(rounds, field, name) for field in fields}
                summary["ratio" if name == "ours" else f"{name} ratio"] = ratio
    return summary


def header(rate: str = "infer/s", cost: str = "CPU µs/req") -> str:
    """Return the head of the table."""
    return (
        f"{'case':<36} {'':<11} {rate:>9} {'p50 µs':>9} {'p99 µs':>9} {cost:>11}"
        f"   ours/Triton: {rate:>8} {'p99':>6} {'CPU':>6}"
    )


def case_lines(title: str, summary: Mapping[str, Any], fields: Sequence[str] = FIELDS) -> list[str]:
    """Return the lines of the table for one case: one for each server, with its ratios to Triton.

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
            line = (
                f"{title if not lines else '':<36} {name:<11} {number(numbers[rate]):>9}"
                f" {number(numbers[p50]):>9} {number(numbers[p99]):>9} {number(numbers[cost]):>11}"
            )
            ratio = summary.get("ratio" if name == "ours" else f"{name} ratio")
            if ratio is not None and "triton" in summary:
                line += f"{'':<16} {times(ratio[rate]):>8} {times(ratio[p99]):>6} {times(ratio[cost]):>6}"
            lines.append(line)
    return lines


def number(value: float | None) -> str:
    """Return a number as people read it, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def times(value: float | None) -> str:
    """Return a ratio, or a dash."""
    return "–" if value is None else f"{value:.2f}×"
