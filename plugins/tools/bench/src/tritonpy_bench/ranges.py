"""Ranges of loads as perf_analyzer writes them: START, START:END or START:END:STEP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def parse_range(text: str, number: Callable[[str], Number], step: Number) -> list[Number]:
    """The numbers of a range, its end included.

    Args:
        text: of the range.
        number: reads one number.
        step: where the text has none.

    Raises:
        ValueError: it is no range of positive numbers.
    """
    parts = [number(part) for part in text.split(":")]
    if not 1 <= len(parts) <= 3 or min(parts) <= 0:
        raise ValueError(text)
    start, end = parts[0], parts[1] if len(parts) > 1 else parts[0]
    if end < start:
        raise ValueError(text)
    if len(parts) == 3:
        step = parts[2]
    values, value = [], start
    while value <= end:
        values.append(value)
        value += step
    return values
