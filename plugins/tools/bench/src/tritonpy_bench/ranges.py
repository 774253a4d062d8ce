"""Ranges of loads as perf_analyzer writes them: START, START:END or START:END:STEP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def parse_range(text: str, number: Callable[[str], Number], step: Number) -> tuple[Number, Number, Number]:
    """The start, the end and the step of a range.

    Args:
        text: of the range.
        number: reads one number.
        step: where the text has none.

    Raises:
        ValueError: it is no range of positive numbers.
    """
    parts = [number(part) for part in text.split(":")]
    start, end, step = parts[0], parts[1] if len(parts) > 1 else parts[0], parts[2] if parts[2:] else step
    if len(parts) > 3 or not (0 < start <= end and step > 0):
        raise ValueError(text)
    return start, end, step


def numbers(start: Number, end: Number, step: Number) -> list[Number]:
    """The numbers of a range, its end included."""
    return [start + index * step for index in range(int((end - start) / step + 1e-9) + 1)]
