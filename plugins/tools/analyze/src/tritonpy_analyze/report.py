"""The report of an analysis: one HTML file without scripts or network, its plots drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from tritonpy_analyze.analysis import Analysis, Trial, frontier
from tritonpy_analyze.measurement import shown_quantity
from tritonpy_analyze.ranking import mean_rows, note, short_names, summary, varying
from tritonpy_analyze.space import shown_choice, shown_value

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 300, 70, 40
_SHOWN = 12
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6b7280; --line: #d0d7de; --good: #1a7f37;
  --dot: #8b949e; --bar: #2f6fbf; --page: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --good: #3fb950; --dot: #656c76; --bar: #4493f8; --page: #0d1117; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
td:last-child, th:last-child { text-align: left; }
.wide { overflow-x: auto; } pre { overflow-x: auto; border: 1px solid var(--line); padding: .7rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); } .good { fill: var(--good); stroke: var(--good); }
.dot { fill: var(--dot); }
.bad { fill: none; stroke: var(--dot); } .bar { fill: var(--bar); } .path { fill: none; stroke: var(--good); }
"""


def html_report(
    analysis: Analysis, models: Sequence[str], configs: Mapping[str, str], lines: Sequence[str] = ()
) -> str:
    """The whole page.

    Args:
        analysis: what came of the search.
        models: that were asked.
        configs: the text of `config.pbtxt` to use, by model.
        lines: further remarks.
    """
    title = f"Configuration of {', '.join(models)}"
    best = analysis.best
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [f"<p>{escape(line)}</p>" for line in (*summary(analysis), *lines)]
    if best is not None:
        chosen = shown_choice(best.choice, without_model=len(configs) == 1)
        parts.append(f"<p>Best: <b>{escape(chosen)}</b></p>")
        parts += ["<h2>Throughput and latency</h2>", _frontier_plot(analysis)]
        parts += ["<h2>Memory</h2>", _memory_plot(analysis)]
        parts += ["<h2>Batch sizes</h2>", _batch_plot(analysis)]
        parts += ["<h2>Best first</h2>", _table(analysis)]
        for model, text in configs.items():
            parts.append(f"<h2>config.pbtxt of {escape(model)}</h2><pre>{escape(text)}</pre>")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _top(analysis: Analysis) -> list[Trial]:
    return [trial for trial in analysis.ranked if not trial.error and trial.window.rows][:_SHOWN]


def _table(analysis: Analysis) -> str:
    names = varying(analysis)
    metrics = ["throughput", "latency_p50", "latency_p99", "memory", "cpu"]
    metrics += [metric for metric in analysis.goal.weights if metric not in metrics]
    head = "".join(
        f"<th>{escape(name)}</th>" for name in ("rank", *short_names(names), *metrics, "rows", "note")
    )
    rows = []
    for place, trial in enumerate(_top(analysis), 1):
        cells = [str(place), *(shown_value(trial.choice[name]) for name in names)]
        cells += [shown_quantity(trial.window.metric(metric), metric) for metric in metrics]
        mean = mean_rows(trial.window)
        cells += ["-" if math.isnan(mean) else f"{mean:.1f}", note(analysis, trial)]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _frontier_plot(analysis: Analysis) -> str:
    """Every trial as a point: latency to the right, throughput upwards; the frontier is a line."""
    trials = [trial for trial in analysis.trials if not trial.error and trial.window.rows]
    xs = [trial.window.metric("latency_p99") / 1000 for trial in trials]
    ys = [trial.window.metric("throughput") for trial in trials]
    x_of = _log_scale(min(xs), max(xs), _LEFT, _WIDTH - 20)
    y_of = _scale(0, max(ys), _HEIGHT - _BOTTOM, 15)
    best = analysis.best
    marks = []
    for trial, x, y in zip(trials, xs, ys, strict=True):
        kind = "good" if trial is best else "dot" if trial.is_within else "bad"
        chosen = shown_choice(trial.choice, without_model=False)
        told = f"{chosen}: {y:.4g}/s, p99 {x:.3g} ms {note(analysis, trial)}"
        marks.append(
            f'<circle class="{kind}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="{6 if trial is best else 3.5}">'
            f"<title>{escape(told)}</title></circle>"
        )
    line = " ".join(
        f"{x_of(trial.window.metric('latency_p99') / 1000):.1f},{y_of(trial.window.metric('throughput')):.1f}"
        for trial in frontier(trials)
    )
    axes = _axis(x_of, _log_ticks(min(xs), max(xs)), "p99 latency, ms", is_horizontal=True)
    axes += _axis(y_of, _ticks(max(ys)), "inferences/s", is_horizontal=False)
    path = f'<polyline class="path" points="{line}"/>'
    legend = (
        "Each point is a trial, and the line those that none beats in both. Hollow: a constraint is missed."
    )
    return f"{_svg(_HEIGHT, axes + path + ''.join(marks))}<p>{legend}</p>"


def _memory_plot(analysis: Analysis) -> str:
    """A bar for each of the best trials."""
    top = [trial for trial in _top(analysis) if not math.isnan(trial.window.metric("memory"))]
    if not top:
        return "<p>Nobody could tell how much memory was used.</p>"
    most = max(trial.window.metric("memory") for trial in top)
    to_x = _scale(0, most, 40, _WIDTH - 110)
    bars = []
    for index, trial in enumerate(top):
        y, value = 8 + index * 22, trial.window.metric("memory")
        told = escape(shown_choice(trial.choice, without_model=False))
        bars.append(
            f'<text x="30" y="{y + 13}" text-anchor="end">{index + 1}</text>'
            f'<rect class="bar" x="40" y="{y}" width="{to_x(value) - 40:.1f}" height="16">'
            f"<title>{told}</title></rect>"
            f'<text x="{to_x(value) + 6:.1f}" y="{y + 13}">{shown_quantity(value, "memory")}</text>'
        )
    return _svg(16 + len(top) * 22, "".join(bars)) + "<p>By rank.</p>"


def _batch_plot(analysis: Analysis) -> str:
    """For each of the best trials a line of all executions: how wide a size is, so many had it."""
    top = [trial for trial in _top(analysis) if trial.window.batch_sizes]
    if not top:
        return "<p>The server told nothing about batch sizes.</p>"
    largest = max(size for trial in top for size in trial.window.batch_sizes)
    parts = []
    for index, trial in enumerate(top):
        y, x = 8 + index * 22, 40.0
        total = sum(trial.window.batch_sizes.values())
        parts.append(f'<text x="30" y="{y + 13}" text-anchor="end">{index + 1}</text>')
        for size, count in sorted(trial.window.batch_sizes.items()):
            width = count / total * (_WIDTH - 60)
            opacity = 0.2 + 0.8 * math.log(size + 1) / math.log(largest + 1)
            parts.append(
                f'<rect class="bar" fill-opacity="{opacity:.2f}" x="{x:.1f}" y="{y}" '
                f'width="{width:.1f}" height="16">'
                f"<title>{count} executions of {size} rows ({count / total:.0%})</title></rect>"
            )
            if width > 26:
                parts.append(f'<text x="{x + 4:.1f}" y="{y + 13}">{size}</text>')
            x += width
    return (
        _svg(16 + len(top) * 22, "".join(parts)) + "<p>Parts of all executions, by their rows; by rank.</p>"
    )


class _Scale:
    """From values to places."""

    def __init__(self, low: float, high: float, first: float, last: float, *, is_log: bool) -> None:
        self._is_log = is_log
        low, high = (math.log(low), math.log(high)) if is_log else (low, high)
        if high - low < 1e-9:
            low, high = low - 0.5, high + 0.5
        self._low, self._slope, self._first = low, (last - first) / (high - low), first

    def __call__(self, value: float) -> float:
        value = math.log(value) if self._is_log else value
        return self._first + (value - self._low) * self._slope


def _scale(low: float, high: float, first: float, last: float) -> _Scale:
    return _Scale(low, high or 1.0, first, last, is_log=False)


def _log_scale(low: float, high: float, first: float, last: float) -> _Scale:
    return _Scale(low * 0.9, high * 1.1, first, last, is_log=True)


def _ticks(high: float) -> list[float]:
    step = 10 ** math.floor(math.log10(high or 1.0))
    step = next(each for each in (step / 5, step / 2, step, step * 2) if (high or 1.0) / each <= 6)
    return [step * index for index in range(int((high or 1.0) / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [tick for tick in ticks if low * 0.9 <= tick <= high * 1.1]


def _axis(to: _Scale, ticks: Sequence[float], title: str, *, is_horizontal: bool) -> str:
    base = _HEIGHT - _BOTTOM
    parts = []
    for tick in ticks:
        place = to(tick)
        if is_horizontal:
            parts.append(f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="15" y2="{base}"/>')
            parts.append(f'<text x="{place:.1f}" y="{base + 16}" text-anchor="middle">{tick:g}</text>')
        else:
            parts.append(
                f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{place:.1f}" y2="{place:.1f}"/>'
            )
            parts.append(f'<text x="{_LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{tick:g}</text>')
    if is_horizontal:
        parts.append(f'<text x="{_WIDTH - 20}" y="{base + 34}" text-anchor="end">{title}</text>')
    else:
        parts.append(f'<text x="4" y="10">{title}</text>')
    return "".join(parts)


def _svg(height: int, content: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">{content}</svg>'
