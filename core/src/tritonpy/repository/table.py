"""The start-up table of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tritonpy.handles import JsonObject


def models_table(index: Sequence[JsonObject], refusals: Mapping[str, str]) -> str:
    """Model, version and status of every entry of the repository index, one line each.

    Args:
        index: as the repository index shows it.
        refusals: by model, why it was refused before any of its versions was tried.
    """
    rows = [("Model", "Version", "Status")]
    for entry in index:
        state = entry.get("state", "UNAVAILABLE")
        reason = entry.get("reason", refusals.get(entry["name"], ""))
        rows.append((entry["name"], entry.get("version", "-"), f"{state}: {reason}" if reason else state))
    return format_table(rows)


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Draw rows of cells, the first one as the heading; cells may have several lines."""
    cells = [[str(cell).splitlines() or [""] for cell in row] for row in rows]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(rows[0]))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [rule]
    for row in cells:
        for height in range(max(map(len, row))):
            texts = [cell[height] if height < len(cell) else "" for cell in row]
            lines.append(
                "| " + " | ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)) + " |"
            )
        if row is cells[0]:
            lines.append(rule)
    lines.append(rule)
    return "\n".join(lines)
