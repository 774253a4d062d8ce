"""What it costs the event loop to count a batch, with each setting of `--metrics-config`.

    python benchmarks/metrics_cost.py [--out FILE]

Counts batches of 1 and of 32 requests as an instance does when it has executed them, interleaved over the
settings, and prints microseconds for a request: the median of the rounds. Beside it the cost of one
observation, ours and that of other ways to keep quantiles, where their packages are installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine_facts import machine_facts
from tritonpy.latencies import Summary
from tritonpy.metrics.settings import MetricsSettings
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.response_clock import ResponseClock
from tritonpy.stats import ModelStats

ROUNDS = 9
REQUESTS = 6400
DECOUPLED = {"model_transaction_policy": {"decoupled": True}}
SETTINGS = {
    "counters": MetricsSettings(),
    "counters and summaries": MetricsSettings(has_summaries=True),
}


def main() -> int:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    out = parser.parse_args().out
    results = {
        "machine": machine_facts(),
        "us_per_request": {size: batches(size) for size in (1, 32)},
        "us_per_first_response": first_responses(),
        "us_per_observation": observations(),
    }
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    if out is not None:
        out.write_text(text)
    return 0


def batches(size: int) -> dict[str, float]:
    """Counting executed batches of so many requests."""
    stats = {name: ModelStats(latencies=settings.latencies({})) for name, settings in SETTINGS.items()}
    rounds: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(ROUNDS):
        for name in SETTINGS:
            now = time.monotonic_ns()
            made = [_execution(size, stats[name], now) for _ in range(REQUESTS // size)]
            times = (now - 900_000, now - 890_000, now - 90_000, now)
            start = time.thread_time()
            for execution in made:
                execution._count(times, size, size, execution._queued_since)
                if execution._stats.latencies is not None:
                    execution._observe(
                        execution._stats.latencies, times[0], execution.requests, execution.requests
                    )
            rounds[name].append((time.thread_time() - start) / REQUESTS * 1e6)
    return {name: round(statistics.median(values), 3) for name, values in rounds.items()}


def _execution(size: int, stats: ModelStats, now: int) -> Execution:
    requests = [InferRequest("m", {}) for _ in range(size)]
    for request in requests:
        request.ticket.answered = True
        request.queue_start_ns = now - random.randrange(1_000_000, 3_000_000)
    return Execution(requests, size, stats)


def first_responses() -> dict[str, float]:
    """Counting the first response of requests of a decoupled model."""
    rounds: dict[str, list[float]] = {"off": [], "histogram": []}
    response = InferResponse()
    for _ in range(ROUNDS):
        for name, values in rounds.items():
            stats = ModelStats(latencies=MetricsSettings(has_histograms=name != "off").latencies(DECOUPLED))
            request = InferRequest("m", {})
            request.queue_start_ns = time.monotonic_ns()
            clocks = [ResponseClock(stats) for _ in range(REQUESTS)]
            start = time.thread_time()
            for clock in clocks:
                clock.count(request, response, (1, 1))
            values.append((time.thread_time() - start) / REQUESTS * 1e6)
            request.ticket.answered = True
    return {name: round(statistics.median(values), 3) for name, values in rounds.items()}


def observations() -> dict[str, float]:
    """One observation, in ways that keep quantiles."""
    durations = [int(random.lognormvariate(8, 1)) for _ in range(REQUESTS)]
    rounds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, add in _ways().items():
            start = time.thread_time()
            for duration in durations:
                add(duration)
            rounds.setdefault(name, []).append((time.thread_time() - start) / REQUESTS * 1e6)
    return {name: round(statistics.median(values), 3) for name, values in rounds.items()}


def _ways() -> dict[str, Callable[[Any], object]]:  # Any: a number
    ways: dict[str, Callable[[Any], object]] = {"tritonpy.latencies.Summary": Summary().add}
    for name, module, make in (
        ("ddsketch.DDSketch", "ddsketch", lambda found: found.DDSketch(0.002).add),
        ("fastdigest.TDigest", "fastdigest", lambda found: found.TDigest().update),
        ("datasketches.kll_ints_sketch", "datasketches", lambda found: found.kll_ints_sketch(200).update),
    ):
        try:
            ways[name] = make(importlib.import_module(module))
        except ImportError as exc:
            print(f"{name} is not measured: {exc}")
    return ways


if __name__ == "__main__":
    raise SystemExit(main())
