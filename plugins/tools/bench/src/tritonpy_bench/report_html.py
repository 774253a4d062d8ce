"""Measurements as one page with plots, whose drawings are part of it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tritonpy_bench.measurement import PERCENTILES, Measurement
from tritonpy_bench.plots import Line, bars, lines
from tritonpy_bench.report_text import notes

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; }
svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: currentColor; }
svg .axis { stroke: #8888; }
pre { white-space: pre-wrap; }
.warning { color: #b00020; }
"""
_PHASES = ("queue", "compute_input", "compute_infer", "compute_output")


def html_report(measurements: Sequence[Measurement]) -> str:
    """A page that needs nothing else."""
    load = measurements[0].load
    title = f"{load.model}, {load.protocol} at {load.url}, batch size {load.batch_size}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(load.model)}</h1><p>{escape(title)}</p>",
        _table(measurements),
    ]
    if len(measurements) > 1:
        frontier = [(one.infer_per_s, one.latency_us(99) / 1000) for one in measurements]
        mean = [(one.infer_per_s, one.latency_us() / 1000) for one in measurements]
        parts.append(
            _figure(
                "Latency against throughput",
                lines([Line("p99", frontier), Line("mean", mean)], "infer/s", "ms"),
            )
        )
    parts.append(_figure("Latencies by percentile", lines(_by_percentile(measurements), "percentile", "ms")))
    if any(one.server for one in measurements):
        parts.append(_figure("Where the time goes, by the server's statistics", _phases(measurements)))
    for one in measurements:
        parts.append(f"<h2>{escape(str(one.load.pace))}</h2>")
        if said := notes(one):
            parts.append(f"<pre>{escape(chr(10).join(said))}</pre>")
        windows = [(float(number), w.requests_per_s) for number, w in enumerate(one.windows, 1)]
        if len(windows) > 1:
            parts.append(
                _figure("Requests/s of each window", lines([Line("", windows)], "window", "requests/s"))
            )
        if one.server and one.server[0].batch_sizes:
            sizes = one.server[0].batch_sizes
            counts = [(str(size), {"executions": float(count)}) for size, count in sizes.items()]
            parts.append(_figure("Rows of an execution", bars(counts, "executions")))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _table(measurements: Sequence[Measurement]) -> str:
    header = ["load", "infer/s", "requests", "mean µs"]
    header += [f"p{percent:g} µs" for percent in PERCENTILES] + ["failed", "stable"]
    rows = []
    for one in measurements:
        cells = [str(one.load.pace), f"{one.infer_per_s:.1f}", str(one.latency_ns.count)]
        cells += [f"{one.latency_us():.0f}", *(f"{one.latency_us(percent):.0f}" for percent in PERCENTILES)]
        cells += [str(one.error_count), "yes" if one.is_stable else "no"]
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        mark = ' class="warning"' if one.error_count or not one.is_stable else ""
        rows.append(f"<tr{mark}>{row}</tr>")
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _by_percentile(measurements: Sequence[Measurement]) -> list[Line]:
    percents = [*range(1, 100), 99.5, 99.9]
    return [
        Line(str(one.load.pace), [(percent, one.latency_us(percent) / 1000) for percent in percents])
        for one in measurements
    ]


def _phases(measurements: Sequence[Measurement]) -> str:
    rows = []
    for one in measurements:
        if one.server:
            durations = one.server[0].durations_us
            phases = {phase.replace("_", " "): durations.get(phase, 0.0) for phase in _PHASES}
            rows.append((str(one.load.pace), phases))
    return bars(rows, "µs")


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
