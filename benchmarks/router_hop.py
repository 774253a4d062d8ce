"""What the hop through a router costs: a server asked directly, through `corectl route` and Envoy, in turns.

One server with a model that returns its input, a router and Envoy before it, and `tritonpy_bench` as the
client, all on the cores of this machine. Each round asks all ways; ratios are of one round, and medians of
all are shown.
Processor time is that of the whole process, divided by the requests that the server has counted meanwhile.

    python benchmarks/router_hop.py --rounds 5 --name router-hop
    python benchmarks/router_hop.py --rounds 3 --window-s 0.6 --no-envoy --cases http:64:1,grpc:64:1 --name ''
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import envoy_proxy
import process_tree
from bench_servers import free_port
from kill_matrix import write_page
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
PAGE = Path(__file__).parents[1] / "docs/how-to/use-all-cores.md"


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


def success_count(port: int) -> int:
    """Requests that the server has answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/echo/stats", timeout=10) as answer:
        statistics_of_it = json.load(answer)["model_stats"][0]["inference_stats"]
    return int(statistics_of_it["success"]["count"])


@dataclass(frozen=True)
class Way:
    """How the server is reached.

    Attributes:
        ports: that are asked.
        pid: of the process in between; None for none.
        server_pid: of the server.
    """

    ports: dict[str, int]
    pid: int | None
    server_pid: int


def ask(
    way: Way, server_port: int, protocol: Any, size: int, count: int, window_s: float
) -> dict[str, float]:
    load = Load(
        model="echo",
        url=f"127.0.0.1:{way.ports[protocol]}",
        protocol=protocol,
        pace=Concurrency(count),
        inputs=Inputs(shapes={"INPUT0": (size,)}),
    )
    answered = success_count(server_port)
    before = 0 if way.pid is None else process_tree.cpu_time_us(way.pid)
    server_before = process_tree.cpu_time_us(way.server_pid)
    found = measure(load, Stability(window_s=window_s, windows=1, most_windows=1, warmup_s=0.2))
    cpu_us = 0 if way.pid is None else process_tree.cpu_time_us(way.pid) - before
    server_cpu_us = process_tree.cpu_time_us(way.server_pid) - server_before
    answered = success_count(server_port) - answered
    if found.error_count:
        raise SystemExit(f"{found.error_count} requests have failed: {dict(found.errors)}")
    return {
        "requests_per_s": found.requests_per_s,
        "p50_us": found.latency_us(50),
        "p99_us": found.latency_us(99),
        "cpu_us": cpu_us / answered,
        "server_cpu_us": server_cpu_us / answered,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument(
        "--beside", action="append", default=[], help="where another router is imported from; may be repeated"
    )
    parser.add_argument("--page", action="store_true", help="write what 100,000 requests/s take into a page")
    parser.add_argument("--no-envoy", action="store_true", help="leave Envoy out")
    parser.add_argument(
        "--cases", default="", help="protocol:bytes:concurrency, with commas between; all if not given"
    )
    parser.add_argument("--name", default="router-hop", help="of the file of results; '' for none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ModelRepository(Path(folder)).model("echo", CONFIG)
        direct, routed = ports(), ports()
        place = f"--server=127.0.0.1:{direct['http']}:{direct['grpc']}"
        server = subprocess.Popen(
            [*CORECTL, "serve", f"--model-repository={folder}", *flags(direct)], stderr=subprocess.DEVNULL
        )
        router = subprocess.Popen([*CORECTL, "route", place, *flags(routed)], stderr=subprocess.DEVNULL)
        processes = [router, server]
        ways = {"direct": Way(direct, None, server.pid), "routed": Way(routed, router.pid, server.pid)}
        try:
            if not arguments.no_envoy:
                envoy, envoy_ports = envoy_proxy.start(Path(folder), direct)
                processes.insert(0, envoy)
                ways["envoy"] = Way(envoy_ports, envoy.pid, server.pid)
            if arguments.beside:
                old = ports()
                other = subprocess.Popen(
                    [*CORECTL, "route", place, *flags(old)],
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(arguments.beside)},
                )
                processes.insert(0, other)
                ways["beside"] = Way(old, other.pid, server.pid)
            for way in ways.values():
                wait(way.ports["http"])
            rows = rounds(ways, direct["http"], arguments)
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    if arguments.page:
        write_page("paper", paper(rows), PAGE)
    if arguments.name:
        result = {
            "machine": machine_facts(),
            "load_average_at_end": os.getloadavg()[0],
            "settings": vars(arguments),
            "cases": rows,
        }
        day = datetime.date.today().isoformat()
        path = Path(__file__).parent / "results" / f"{day}-{arguments.name}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(path)


def paper(rows: list[dict[str, Any]]) -> str:
    """What 100,000 small requests a second would take, for the page."""
    lines = [
        "| 64 B, requests at a time | server | router | cores of servers for 100,000/s | and of routers |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row["bytes"] < 1024:
            cores, router_us = row["cores_for_100k_per_s"], row["routed"]["cpu_us"]
            name = f"{row['protocol']}, {row['concurrency']}"
            costs = f"{row['server_cpu_us']:.0f} µs | {router_us:.0f} µs"
            lines.append(f"| {name} | {costs} | {cores['servers']} | {cores['routers']} |")
    return "\n".join(lines)


def rounds(ways: dict[str, Way], server_port: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    cases = [(protocol, size, count) for protocol, size, count in CASES]
    if arguments.cases:
        named = [case.split(":") for case in arguments.cases.split(",")]
        cases = [(protocol, int(size) // 4, int(count)) for protocol, size, count in named]
    measured: dict[tuple[str, int, int], list[dict[str, dict[str, float]]]] = {case: [] for case in cases}
    for number in range(arguments.rounds):
        for case in cases:
            order = list(ways) if number % 2 == 0 else list(reversed(ways))
            each = {way: ask(ways[way], server_port, *case, arguments.window_s) for way in order}
            measured[case].append(each)
    rows = []
    for (protocol, size, count), each_round in measured.items():
        row: dict[str, Any] = {"protocol": protocol, "bytes": size * 4, "concurrency": count}
        text = f"{protocol} {size * 4:>8} B c={count:<3}"
        server_us = statistics.median(each["direct"]["server_cpu_us"] for each in each_round)
        row["server_cpu_us"] = round(server_us, 1)
        text += f" | server {row['server_cpu_us']} µs CPU"
        for way in list(ways)[1:]:
            shares = [each[way]["requests_per_s"] / each["direct"]["requests_per_s"] for each in each_round]
            added = [each[way]["p50_us"] - each["direct"]["p50_us"] for each in each_round]
            cpu = [each[way]["cpu_us"] for each in each_round]
            row[way] = {
                "requests_share": round(statistics.median(shares), 3),
                "p50_added_us": round(statistics.median(added)),
                "cpu_us": round(statistics.median(cpu), 1),
            }
            text += (
                f" | {way}: {row[way]['requests_share']:.2f} of the requests/s, "
                f"p50 {row[way]['p50_added_us']:+} µs, {row[way]['cpu_us']} µs CPU"
            )
        if "envoy" in ways:
            ratios = [each["routed"]["cpu_us"] / max(each["envoy"]["cpu_us"], 0.1) for each in each_round]
            row["routed_cpu_by_envoy_cpu"] = round(statistics.median(ratios), 2)
            text += f" | CPU of router/Envoy {row['routed_cpu_by_envoy_cpu']}"
        if "beside" in ways:
            before = [each["routed"]["cpu_us"] / each["beside"]["cpu_us"] for each in each_round]
            row["routed_cpu_by_beside_cpu"] = round(statistics.median(before), 2)
        routed_us = statistics.median(each["routed"]["cpu_us"] for each in each_round)
        row["cores_for_100k_per_s"] = {
            "servers": round(server_us / 10, 1),
            "routers": round(routed_us / 10, 1),
        }
        row["rounds"] = each_round
        rows.append(row)
        print(text, flush=True)
    return rows


if __name__ == "__main__":
    main()
