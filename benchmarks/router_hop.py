"""What the hop through a router costs: the same server asked directly and through `corectl route`, in turns.

One server with a model that returns its input, a router before it, and `tritonpy_bench` as the client, all on
the cores of this machine. Each round asks both ways; ratios are of one round, medians of all are shown.

    python benchmarks/router_hop.py --rounds 5 --name router-hop
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import process_tree
from bench_servers import free_port
from machine_facts import machine_facts
from tritonpy_bench import measure
from tritonpy_bench.load import Inputs, Load, Stability
from tritonpy_bench.paces import Concurrency
from tritonpy_sdk.repository import ModelRepository

CORECTL = (sys.executable, "-m", "tritonpy.cli.main")
CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
CASES = [
    (protocol, size, count) for protocol in ("http", "grpc") for size in (16, 262_144) for count in (1, 8, 32)
]
DEADLINE_S = 60


def ports() -> dict[str, int]:
    return {name: free_port() for name in ("http", "grpc", "metrics")}


def flags(of: dict[str, int]) -> list[str]:
    listen = [f"--{name}-port={port}" for name, port in of.items()]
    return [*listen, *(f"--{name}-address=127.0.0.1" for name in of)]


def wait(port: int) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/echo/ready", timeout=5).close()
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"nothing is ready on port {port}")


def ask(
    where: dict[str, int], pid: int, protocol: Any, size: int, count: int, window_s: float
) -> dict[str, float]:
    load = Load(
        model="echo",
        url=f"127.0.0.1:{where[protocol]}",
        protocol=protocol,
        pace=Concurrency(count),
        inputs=Inputs(shapes={"INPUT0": (size,)}),
    )
    before = process_tree.cpu_time_us(pid)
    begun = time.monotonic()
    found = measure(load, Stability(window_s=window_s, windows=1, most_windows=1, warmup_s=0.2))
    cpu_us = process_tree.cpu_time_us(pid) - before
    sent = found.requests_per_s * (time.monotonic() - begun)  # the warm-up costs as much
    if found.error_count:
        raise SystemExit(f"{found.error_count} requests have failed")
    return {
        "requests_per_s": found.requests_per_s,
        "p50_us": found.latency_us(50),
        "p99_us": found.latency_us(99),
        "router_cpu_us": cpu_us / sent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--name", default="router-hop")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ModelRepository(Path(folder)).model("echo", CONFIG)
        direct, routed = ports(), ports()
        place = f"--server=127.0.0.1:{direct['http']}:{direct['grpc']}"
        server = subprocess.Popen(
            [*CORECTL, "serve", f"--model-repository={folder}", *flags(direct)], stderr=subprocess.DEVNULL
        )
        router = subprocess.Popen([*CORECTL, "route", place, *flags(routed)], stderr=subprocess.DEVNULL)
        try:
            wait(direct["http"])
            wait(routed["http"])
            rows = rounds(direct, routed, router.pid, arguments)
        finally:
            for process in (router, server):
                process.terminate()
                process.wait()
    result = {"machine": machine_facts(), "settings": vars(arguments), "cases": rows}
    day = datetime.date.today().isoformat()
    path = Path(__file__).parent / "results" / f"{day}-{arguments.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


def rounds(
    direct: dict[str, int], routed: dict[str, int], router_pid: int, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    measured: dict[tuple[str, int, int], list[dict[str, dict[str, float]]]] = {case: [] for case in CASES}
    for number in range(arguments.rounds):
        for case in CASES:
            ways = {"direct": direct, "routed": routed}
            order = list(ways) if number % 2 == 0 else list(reversed(ways))
            each = {way: ask(ways[way], router_pid, *case, arguments.window_s) for way in order}
            measured[case].append(each)
    rows = []
    for (protocol, size, count), each_round in measured.items():
        shares = [each["routed"]["requests_per_s"] / each["direct"]["requests_per_s"] for each in each_round]
        added = [each["routed"]["p50_us"] - each["direct"]["p50_us"] for each in each_round]
        cpu = [each["routed"]["router_cpu_us"] for each in each_round]
        row = {
            "protocol": protocol,
            "bytes": size * 4,
            "concurrency": count,
            "requests_share": round(statistics.median(shares), 3),
            "p50_added_us": round(statistics.median(added)),
            "router_cpu_us": round(statistics.median(cpu), 1),
            "rounds": each_round,
        }
        rows.append(row)
        print(
            f"{protocol} {size * 4:>8} B c={count:<3} {row['requests_share']:.2f} of the requests/s, "
            f"p50 +{row['p50_added_us']} µs, router {row['router_cpu_us']} µs CPU a request"
        )
    return rows


if __name__ == "__main__":
    main()
