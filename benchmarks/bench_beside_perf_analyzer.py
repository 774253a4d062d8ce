"""`corectl bench` beside the real perf_analyzer: what they find, and what a request costs each client.

    python benchmarks/bench_beside_perf_analyzer.py [--rounds 4] [--loads waits] [--out FILE]

Without options it takes less than five minutes. Both put the same loads on one server of ours, in turns. The
model `waits` takes 20 ms for each request, so that what is found depends little on how quick the machine is,
and the two have to agree in the rate and the median latency, in the median of the rounds; `echo` takes none,
so that the clients have much to do, and the cheaper one leaves the server more of the machine.

Neither has an advantage from when it counts: ours opens its connections and warms up for half a second before
its windows, perf_analyzer begins with windows; both count the requests that end in a window, over its length.
The order of the two is another in each round. The p99 is shown and not judged: it is of 150 to 350
requests, so that it is the second to fourth slowest of them.

The exit status is 1 where the two do not agree.

The cost of a request is the processor time of the client: of perf_analyzer's process from its start to its
end, over all requests that the server has counted in that time; of ours as it tells it itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

import bench_servers
import load_generator
from bench_servers import RunningServer
from load_generator import LoadFailed
from machine_facts import machine_facts
from tritonpy_bench import Concurrency, Inputs, Load, Measurement, Stability, measure
from tritonpy_sdk.repository import ModelRepository

WITHIN = 0.05
LOADS = [
    load_generator.Load(model, protocol, concurrency, "INPUT0", "16", 64)
    for model, concurrency in (("waits", 2), ("waits", 4), ("echo", 1), ("echo", 8))
    for protocol in ("http", "grpc")
]


def main() -> int:
    """Measure, print a table, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--window-ms", type=int, default=600)
    parser.add_argument("--loads", default="", help="only those whose title begins so, such as waits")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    loads = [load for load in LOADS if load.title.startswith(arguments.loads)]
    machine = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        repository = make_models(Path(folder) / "models")
        server = bench_servers.start("ours", bench_servers.OURS_COMMAND, repository, Path(folder) / "log")
        try:
            rounds = [
                run_round(server, loads, number, arguments.window_ms) for number in range(arguments.rounds)
            ]
        finally:
            server.stop()
    cases = {load.title: summary([row[load.title] for row in rounds]) for load in loads}
    print(f"{'':28}{'infer/s':>9}{'p50':>7}{'p99':>7}   each as ours / perf_analyzer; client µs a request")
    do_agree = True
    for title, case in cases.items():
        ratios = "".join(f"{case['ratio'][key]:>8.2f}" for key in ("infer_per_s", "p50_us", "p99_us"))
        costs = case["client_us"]
        agrees = ""
        if title.startswith("waits"):
            is_close = agree(case)
            do_agree = do_agree and is_close
            least, greatest = single_rounds([row[title] for row in rounds])
            agrees = f"   {'within' if is_close else 'NOT within'} {WITHIN:.0%}"
            agrees += f"; infer/s of single rounds {least:.2f} to {greatest:.2f}"
        print(f"{title:28}{ratios}   {costs['ours']:.0f} / {costs['perf_analyzer']:.0f} µs{agrees}")
    if arguments.out:
        document = {
            "machine": machine,
            "load_average_at_end": os.getloadavg()[0],
            "window_ms": arguments.window_ms,
            "cases": cases,
            "rounds": rounds,
        }
        arguments.out.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if do_agree else 1


def agree(case: dict[str, dict[str, float]]) -> bool:
    """True if the two found the same rate and the same p50, in the medians of the rounds."""
    return all(abs(case["ratio"][key] - 1) <= WITHIN for key in ("infer_per_s", "p50_us"))


def single_rounds(rows: list[dict[str, dict[str, float]]]) -> tuple[float, float]:
    """The least and the greatest ratio of the rates of one round."""
    ratios = [row["ours"]["infer_per_s"] / row["perf_analyzer"]["infer_per_s"] for row in rows]
    return min(ratios), max(ratios)


def make_models(path: Path) -> Path:
    """Write the two models."""
    repository = ModelRepository(path)
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    config = {
        "max_batch_size": 8,
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
    }
    repository.model("echo", {"backend": "identity", **config})
    delay = {"execute_delay_ms": {"string_value": "20"}}
    repository.model(
        "waits", {"backend": "identity", **config, "instance_group": [{"count": 4}], "parameters": delay}
    )
    return path


def run_round(
    server: RunningServer, loads: list[load_generator.Load], number: int, window_ms: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure each load with both, and the other one first every second time."""
    row = {}
    for load in loads:
        clients = [("ours", ours), ("perf_analyzer", theirs)]
        row[load.title] = {
            name: client(server, load, window_ms)
            for name, client in (clients if number % 2 else clients[::-1])
        }
        print(f"round {number + 1}: {load.title}", file=sys.stderr)
    return row


def ours(server: RunningServer, load: load_generator.Load, window_ms: int) -> dict[str, float]:
    """Measure with tritonpy_bench."""
    windows = load_generator.WINDOWS
    measured: Measurement = measure(
        Load(
            model=load.model_name,
            url=server.url(load.protocol),
            protocol="http" if load.protocol == "http" else "grpc",
            pace=Concurrency(load.concurrency),
            inputs=Inputs(shapes={load.input_name: (16,)}),
        ),
        Stability(window_s=window_ms / 1000, windows=windows, most_windows=windows),
    )
    return {
        "infer_per_s": measured.infer_per_s,
        "p50_us": measured.latency_us(50),
        "p99_us": measured.latency_us(99),
        "client_us": measured.total.client_cpu_s * 1e6 / measured.latency_ns.count,
        "errors": measured.error_count,
    }


def theirs(server: RunningServer, load: load_generator.Load, window_ms: int) -> dict[str, float]:
    """Measure with perf_analyzer; again if it finds nothing in its windows."""
    for attempt in range(3):
        before_s, count = _children_cpu_s(), server.success_count(load.model_name)
        try:
            measured = load_generator.measure(server, load, window_ms)
        except LoadFailed:
            if attempt == 2:
                raise
            continue
        answered = server.success_count(load.model_name) - count
        return {
            "infer_per_s": measured.infer_per_s,
            "p50_us": measured.p50_us,
            "p99_us": measured.p99_us,
            "client_us": (_children_cpu_s() - before_s) * 1e6 / answered,
        }
    raise AssertionError


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(rows: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians of the rounds, and of the ratios within each."""

    def median(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    keys = ("infer_per_s", "p50_us", "p99_us", "client_us")
    return {
        **{
            key: {name: median([row[name][key] for row in rows]) for name in ("ours", "perf_analyzer")}
            for key in keys
        },
        "ratio": {
            key: median([row["ours"][key] / row["perf_analyzer"][key] for row in rows]) for key in keys
        },
    }


if __name__ == "__main__":
    sys.exit(main())
