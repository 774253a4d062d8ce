"""Plots as SVG: lines over two axes, and bars; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

_COLORS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#d97706", "#0891b2", "#be185d", "#4d7c0f")
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 160, 12, 40
_ROW = 22


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together.

    Attributes:
        title: for the legend; empty for none.
        points: horizontal and vertical values.
    """

    title: str
    points: Sequence[tuple[float, float]]


def lines(plotted: Sequence[Line], x_title: str, y_title: str) -> str:
    """Lines with a mark at each point, whose values show under the pointer; axes begin at 0."""
    points = [point for line in plotted for point in line.points]
    x_most = _nice(max((x for x, _ in points), default=1) or 1)
    y_most = _nice(max((y for _, y in points), default=1) or 1)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + width * x / x_most, _TOP + height * (1 - y / y_most)

    parts = [_begin(_HEIGHT)]
    for part in range(5):
        x, y = place(x_most * part / 4, y_most * part / 4)
        bottom, right = _TOP + height, _LEFT + width
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{y_most * part / 4:g}</text>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{x_most * part / 4:g}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{escape(x_title)} →, {escape(y_title)} ↑</text>')
    for index, line in enumerate(plotted):
        color = _COLORS[index % len(_COLORS)]
        placed = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (x, y), (x_value, y_value) in zip(placed, line.points, strict=True):
            told = escape(f"{line.title} {x_title} {x_value:g}: {y_value:.4g} {y_title}".strip())
            mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}">'
            parts.append(f"{mark}<title>{told}</title></circle>")
        if line.title:
            parts.append(_legend(index, line.title, _TOP + 8 + 16 * index))
    return "".join([*parts, "</svg>"])


def bars(rows: Sequence[tuple[str, Mapping[str, float]]], unit: str) -> str:
    """A bar for each row, of parts one behind the other, whose values show under the pointer."""
    names = [*dict.fromkeys(name for _, parts in rows for name in parts)]
    most = max((sum(parts.values()) for _, parts in rows), default=1) or 1
    left, top = 190, 20 if len(names) > 1 else 0
    width = _WIDTH - left - 90
    drawn = [_begin(top + _ROW * len(rows) + 8)]
    if len(names) > 1:
        for index, name in enumerate(names):
            corner = left + 130 * index
            drawn.append(f'<rect x="{corner}" y="2" width="10" height="10" fill="{_COLORS[index % 8]}"/>')
            drawn.append(f'<text x="{corner + 15}" y="12">{escape(name)}</text>')
    for number, (title, parts) in enumerate(rows):
        y = top + _ROW * number + 4
        drawn.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(title)}</text>')
        x = float(left)
        for index, name in enumerate(names):
            value = parts.get(name, 0.0)
            size = width * value / most
            told = escape(f"{title}, {name}: {value:.4g} {unit}")
            bar = f'<rect x="{x:.1f}" y="{y}" width="{size:.1f}" height="16" fill="{_COLORS[index % 8]}">'
            drawn.append(f"{bar}<title>{told}</title></rect>")
            x += size
        total = sum(parts.values())
        drawn.append(f'<text x="{x + 6:.1f}" y="{y + 13}">{total:.4g} {escape(unit)}</text>')
    return "".join([*drawn, "</svg>"])


def _begin(height: int) -> str:
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'


def _legend(index: int, title: str, y: int) -> str:
    x = _WIDTH - _RIGHT + 12
    color = _COLORS[index % len(_COLORS)]
    return (
        f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{color}"/>'
        f'<text x="{x + 15}" y="{y}">{escape(title)}</text>'
    )


def _nice(value: float) -> float:
    """The end of an axis: a round number that is not less."""
    unit = 10.0 ** floor(log10(value))
    for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10):
        if factor * unit >= value:
            return factor * unit
    return 10 * unit
