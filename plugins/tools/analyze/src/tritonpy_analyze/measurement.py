"""What was measured: windows of time under load, what they come to together, and metrics by name."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tritonpy.errors import InvalidArg

from tritonpy_analyze.histogram import Histogram

MIB = 1 << 20

JsonObject = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Window:
    """What happened in a stretch of time under a load.

    Attributes:
        seconds: its length.
        rows: inferences that succeeded; a request with a batch of four is four.
        failed: requests that failed.
        due: requests that a rate asked for; 0 of other loads.
        unanswered: of these, those that were neither answered nor refused; 0 where that may be chance.
        latency: of requests, until their last response.
        first_response, between_responses: of decoupled models, and empty for others.
        tokens: elements of the output that is counted; 0 where none is.
        between_tokens: of decoupled models, from one of them to the next.
        memory_byte_size, cpu_cores: of the server and its workers; NaN where nobody can tell.
        gpu_memory_byte_size, gpu_utilization: of all GPUs, the latter from 0 to 1; NaN without.
        batch_sizes: executions by their rows, of all models together.
        queue_us, compute_us: mean time of a request in them, of all models that it passed.
        parts: of each model, where several were asked at the same time.
    """

    seconds: float
    rows: int
    failed: int = 0
    latency: Histogram = field(default_factory=Histogram)
    first_response: Histogram = field(default_factory=Histogram)
    between_responses: Histogram = field(default_factory=Histogram)
    memory_byte_size: float = math.nan
    cpu_cores: float = math.nan
    gpu_memory_byte_size: float = math.nan
    gpu_utilization: float = math.nan
    batch_sizes: Mapping[int, int] = field(default_factory=dict)
    queue_us: float = math.nan
    compute_us: float = math.nan
    parts: Mapping[str, Window] = field(default_factory=dict)
    due: int = 0
    unanswered: int = 0
    tokens: int = 0
    between_tokens: Histogram = field(default_factory=Histogram)

    def metric(self, name: str) -> float:
        """One of `METRICS`: throughput in inferences a second, times in µs, memory in MiB, CPU in cores.

        Where several models were asked, `MODEL.METRIC` is that of one of them, without a model that of all.
        """
        model, _, name = name.rpartition(".")
        if model:
            return self.parts[model].metric(name) if model in self.parts else math.nan
        if name == "throughput":
            return self.rows / self.seconds if self.seconds else 0.0
        if name == "responses":
            count = self.first_response.count + self.between_responses.count
            return (count or self.latency.count) / self.seconds if self.seconds else 0.0
        if name == "tokens":
            return self.tokens / self.seconds if self.seconds and self.tokens else math.nan
        if name == "failed":
            return self.failed / max(1, self.failed + self.latency.count)
        if name == "unanswered":
            return self.unanswered / self.due if self.due else 0.0
        if name in _PLAIN:
            return float(getattr(self, _PLAIN[name])) / (MIB if name.endswith("memory") else 1)
        histogram, _, statistic = name.rpartition("_")
        durations: Histogram = getattr(self, histogram)
        return durations.mean_us if statistic == "avg" else durations.quantile_us(int(statistic[1:]) / 100)

    def json(self) -> JsonObject:
        """In a form that `window_of` reads."""
        return asdict(self)


_PLAIN = {
    "memory": "memory_byte_size",
    "cpu": "cpu_cores",
    "gpu_memory": "gpu_memory_byte_size",
    "gpu_utilization": "gpu_utilization",
    "queue": "queue_us",
    "compute": "compute_us",
}
_TIMES = ("latency", "first_response", "between_responses", "between_tokens")
_STATISTICS = ("avg", "p50", "p90", "p95", "p99")

METRICS: Mapping[str, int] = {
    "throughput": 1,
    "responses": 1,
    "tokens": 1,
    "failed": -1,
    "unanswered": -1,
    **{f"{time}_{statistic}": -1 for time in _TIMES for statistic in _STATISTICS},
    "memory": -1,
    "cpu": -1,
    "gpu_memory": -1,
    "gpu_utilization": -1,
}
"""Names of metrics that objectives and constraints may have: 1 if more is better, -1 if less is."""


def check_metric(name: str) -> str:
    """Refuse what is no metric.

    Raises:
        InvalidArg: names those that there are.
    """
    if plain(name) not in METRICS:
        raise InvalidArg(
            f"'{name}' is no metric; expected one of {', '.join(METRICS)}, or of several models MODEL.METRIC"
        )
    return name


def plain(name: str) -> str:
    """The name of a metric without that of a model."""
    return name.rpartition(".")[2]


def together(windows: Sequence[Window]) -> Window:
    """All windows as one: distributions merged, rates over the whole time, the most memory of any."""
    seconds = sum(window.seconds for window in windows)
    latency, first, between, gaps = Histogram(), Histogram(), Histogram(), Histogram()
    sizes: Counter[int] = Counter()
    for window in windows:
        latency, first = latency + window.latency, first + window.first_response
        between, gaps = between + window.between_responses, gaps + window.between_tokens
        sizes.update(window.batch_sizes)

    def mean(values: Iterable[float]) -> float:
        pairs = zip(values, windows, strict=True)
        known = [(value, window.seconds) for value, window in pairs if not math.isnan(value)]
        return sum(v * s for v, s in known) / sum(s for _, s in known) if known else math.nan

    def most(values: Iterable[float]) -> float:
        return max((value for value in values if not math.isnan(value)), default=math.nan)

    return Window(
        seconds,
        sum(window.rows for window in windows),
        sum(window.failed for window in windows),
        latency,
        first,
        between,
        most(window.memory_byte_size for window in windows),
        mean(window.cpu_cores for window in windows),
        most(window.gpu_memory_byte_size for window in windows),
        mean(window.gpu_utilization for window in windows),
        dict(sorted(sizes.items())),
        mean(window.queue_us for window in windows),
        mean(window.compute_us for window in windows),
        {
            model: together([window.parts[model] for window in windows if model in window.parts])
            for model in dict.fromkeys(model for window in windows for model in window.parts)
        },
        sum(window.due for window in windows),
        sum(window.unanswered for window in windows),
        sum(window.tokens for window in windows),
        gaps,
    )


def window_of(found: JsonObject) -> Window:
    """Read what `Window.json` has made, also after JSON has turned keys into text and NaN into null."""

    def histogram(value: JsonObject) -> Histogram:
        return Histogram({int(key): count for key, count in value["counts"].items()}, value["sum_us"])

    known = {key: math.nan if value is None else value for key, value in found.items()}
    return Window(
        **known
        | {time: histogram(found[time]) for time in _TIMES if time in found}
        | {"batch_sizes": {int(size): count for size, count in found["batch_sizes"].items()}}
        | {"parts": {model: window_of(part) for model, part in found["parts"].items()}}
    )


_UNITS = {
    "us": 1.0,
    "µs": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "KiB": 1 / 1024,
    "MiB": 1.0,
    "GiB": 1024.0,
    "MB": 1e6 / MIB,
    "GB": 1e9 / MIB,
    "%": 0.01,
    "": 1.0,
}


def quantity(text: str | float, metric: str) -> float:
    """A number with a unit, in the metric's own: µs, MiB, cores, inferences a second.

    Raises:
        InvalidArg: it is no number, or the unit is not one of this metric.
    """
    match = re.fullmatch(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµ%]*)", str(text).strip())
    unit = match[2] if match else ""
    name = plain(metric)
    kind = (
        ("us", "µs", "ms", "s")
        if name.startswith(_TIMES)
        else ("KiB", "MiB", "GiB", "MB", "GB")
        if name.endswith("memory")
        else ("%",)
    )
    try:
        if match is None or unit not in (*kind, ""):
            raise ValueError
        return float(match[1]) * _UNITS[unit]
    except ValueError as exc:
        raise InvalidArg(
            f"{metric}: got '{text}', expected a number, with a unit of {', '.join(kind)} or none "
            f"(µs of times, MiB of memory)"
        ) from exc


def shown_quantity(value: float, metric: str) -> str:
    """A value for people."""
    metric = plain(metric)
    if math.isnan(value):
        return "-"
    if metric.startswith((*_TIMES, "queue", "compute")):
        return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.0f} µs"
    if metric.endswith("memory"):
        return f"{value:.0f} MiB"
    if metric == "gpu_utilization":
        return f"{value:.0%}"
    if metric in ("failed", "unanswered"):
        return f"{value:.2%}"
    return f"{value:.2f}" if metric == "cpu" else f"{value:.4g}" if value < 1000 else f"{value:.0f}"
