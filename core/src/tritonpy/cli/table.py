"""Columns for a terminal, plain enough for `grep` and `awk`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align `rows` under `header`, two spaces apart; an empty cell is shown as `-`.

    A cell of several lines would break the columns, so only its first line is shown.
    """
    cells = [list(header)]
    cells += [[(value.splitlines() or [""])[0] or "-" for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
