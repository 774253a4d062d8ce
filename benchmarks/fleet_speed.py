"""How a fleet scales behind one router, and what one slow server does to all requests.

The model sleeps for 20 ms and computes nothing, so that servers do not want for cores. *Scaling*: 1, 2, 4 and
8 servers with one instance each, asked by eight clients for each server; the efficiency is the rate by that
of one server times their number. *Slow*: four servers, requests at random times at half of what they can do;
p99 where one of them takes 100 ms, by p99 where all take 20 ms. Rounds alternate.

    python benchmarks/fleet_speed.py --rounds 3
    python benchmarks/fleet_speed.py --rounds 1 --members 1,2 --parts scaling --window-s 1 --no-page --name ''
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import process_tree
from bench_servers import free_port
from fleet_processes import Process, wait_until
from kill_matrix import up_replicas, write_page
from machine_facts import machine_facts
from tritonpy_bench import measure
from tritonpy_bench.load import Inputs, Load, Stability
from tritonpy_bench.measurement import Measurement
from tritonpy_bench.paces import Concurrency, Pace, Rate
from tritonpy_sdk.repository import ModelRepository

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).parents[1] / "docs/how-to/use-all-cores.md"
SLEEP_MS, SLOW_MS = 20, 100
PER_MEMBER = 8
"""Clients for each server, so that none has nothing to do."""
SLOW_COUNT = 4
WARMUP_S = 2.0
"""Until it is known which server is slow; in the part *slow*."""
INSTANCES = 4
"""Of each server in the part *slow*: what clients of models with some instances see."""


def config(sleep_ms: int, instances: int) -> dict[str, Any]:  # Any: JSON
    """A model that sleeps."""
    return {
        "backend": "identity",
        "instance_group": [{"count": instances, "kind": "KIND_CPU"}],
        "parameters": {"execute_delay_ms": {"string_value": str(sleep_ms)}},
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    }


class Fleet:
    """Servers, and a router that is told which of them it has.

    Args:
        folder: for models and logs.
        count: of servers.
        policy: of the router.
        tells: servers tell the router how they are.
    """

    def __init__(self, folder: Path, count: int, policy: str, tells: bool) -> None:
        self._tells = tells
        self._token = folder / "token"
        self._token.write_text("of-this-benchmark-alone-0123456789\n")
        self._token.chmod(0o600)
        for kind, sleep_ms in (("even", SLEEP_MS), ("slow", SLOW_MS)):
            models = ModelRepository(folder / kind)
            models.model("sleeps", config(sleep_ms, 1))
            models.model("some", config(sleep_ms, INSTANCES))
        self._file = folder / "servers"
        self.members = [self._server(folder, f"s{number}", "even") for number in range(count)]
        self.slow = self._server(folder, "slow", "slow")
        command = ["route", f"--servers-file={self._file}", f"--policy={policy}"]
        if tells:
            command.append(f"--replica-token-file={self._token}")
        self.router = Process("router", command, folder / "router.log")

    def _server(self, folder: Path, name: str, kind: str) -> Process:
        command = ["serve", f"--model-repository={folder / kind}"]
        port = free_port() if self._tells else 0
        if port:
            told = {"token-file": self._token, "address": "127.0.0.1", "port": port}
            command += [f"--frontend-config=replica,{key}={value}" for key, value in told.items()]
        return Process(name, command, folder / f"{name}.log", replica_port=port)

    def start(self, with_slow: bool) -> None:
        """Start all."""
        started = [*self.members, *([self.slow] if with_slow else [])]
        for member in started:
            member.start()
        for member in started:
            member.wait_ready("some")
        self.have(self.members[:1], is_up=False)
        self.router.start()

    def have(self, members: Sequence[Process], is_up: bool = True) -> None:
        """Let the router have these servers, and no others."""
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{member.place}\n" for member in members))
        new.replace(self._file)
        if is_up:
            names = {member.name for member in members}
            wait_until(
                lambda: up_replicas(self.router) == names,
                lambda: f"router has not {names}: {self.router.log.read_text()}",
            )

    def answered(self, name: str) -> float:
        """Requests that a server has answered through the router."""
        lines = [
            line
            for line in self.router.metrics().splitlines()
            if line.startswith("tritonpy_router_request_duration_seconds_count{")
            and f'replica="{name}"' in line
        ]
        return sum(float(line.split()[-1]) for line in lines)

    def ask(
        self, model: str, protocol: Any, pace: Pace, window_s: float, warmup_s: float = 0.5
    ) -> tuple[Measurement, float]:
        """Measure a load; the measurement, and the share of a core that the router has used."""
        load = Load(
            model=model,
            url=f"127.0.0.1:{self.router.ports[protocol]}",
            protocol=protocol,
            pace=pace,
            inputs=Inputs(shapes={"INPUT0": (16,)}),
        )
        before, begun_s = process_tree.cpu_time_us(self.router.pid), time.monotonic()
        found = measure(load, Stability(window_s=window_s, windows=1, most_windows=1, warmup_s=warmup_s))
        used_us = process_tree.cpu_time_us(self.router.pid) - before
        if found.error_count:
            raise SystemExit(f"{found.error_count} requests have failed: {dict(found.errors)}")
        return found, used_us / 1e6 / (time.monotonic() - begun_s)

    def end(self) -> None:
        """Kill all."""
        for process in (self.router, *self.members, self.slow):
            process.end()


def scaling(fleet: Fleet, counts: Sequence[int], rounds: int, window_s: float) -> list[dict[str, Any]]:
    """Rates by the number of servers."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for number in range(rounds):
        for count in counts if number % 2 == 0 else reversed(counts):
            fleet.have(fleet.members[:count])
            for protocol in ("http", "grpc"):
                seen, router = fleet.ask("sleeps", protocol, Concurrency(PER_MEMBER * count), window_s)
                row = {"requests_per_s": seen.requests_per_s, "router_cores": router}
                found.setdefault((protocol, count), []).append(row)
    rows = []
    for (protocol, count), each in sorted(found.items()):
        ratios = [
            row["requests_per_s"] / (count * one["requests_per_s"])
            for row, one in zip(each, found[protocol, counts[0]], strict=True)
        ]
        rows.append(
            {
                "protocol": protocol,
                "servers": count,
                "requests_per_s": round(statistics.median(row["requests_per_s"] for row in each), 1),
                "efficiency": round(statistics.median(ratios) * counts[0], 3),
                "router_cores": round(statistics.median(row["router_cores"] for row in each), 3),
                "rounds": each,
            }
        )
        print({key: value for key, value in rows[-1].items() if key != "rounds"}, flush=True)
    return rows


def slow(fleet: Fleet, rounds: int, window_s: float) -> list[dict[str, Any]]:
    """p99 with one slow server of four, by p99 with four that are alike."""
    even = fleet.members[:SLOW_COUNT]
    uneven = [*even[1:], fleet.slow]
    rows = []
    for model, instances in (("sleeps", 1), ("some", INSTANCES)):
        rate = 0.5 * SLOW_COUNT * instances * 1000 / SLEEP_MS
        found: dict[str, list[dict[str, float]]] = {"even": [], "uneven": []}
        for number in range(rounds):
            order = [("even", even), ("uneven", uneven)]
            for kind, members in order if number % 2 == 0 else reversed(order):
                fleet.have(members)
                slow_before = fleet.answered("slow")
                pace = Rate(rate, "poisson", seed=number)
                seen, _ = fleet.ask(model, "http", pace, window_s, WARMUP_S)
                each = {f"p{p}_ms": seen.latency_us(p) / 1000 for p in (50, 90, 99)}
                each["slow_share"] = (fleet.answered("slow") - slow_before) / (rate * (window_s + WARMUP_S))
                found[kind].append(each)
        pairs = list(zip(found["even"], found["uneven"], strict=True))
        row = {
            "instances": instances,
            "requests_per_s": rate,
            **{
                f"{kind}_p{p}_ms": round(statistics.median(each[f"p{p}_ms"] for each in found[kind]), 1)
                for kind in found
                for p in (50, 99)
            },
            "slow_share": round(statistics.median(each["slow_share"] for each in found["uneven"]), 4),
            "p99_ratio": round(statistics.median(b["p99_ms"] / a["p99_ms"] for a, b in pairs), 2),
        }
        print(row, flush=True)
        rows.append({**row, "rounds": found})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rates by the number of servers, for the page."""
    lines = ["| | servers | requests/s | of as many times one server | cores of the router |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        cells = (
            row["protocol"],
            row["servers"],
            row["requests_per_s"],
            row["efficiency"],
            row["router_cores"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--members", default="1,2,4,8", help="numbers of servers, with commas between them")
    parser.add_argument("--parts", default="scaling,slow")
    parser.add_argument("--policy", default="two-choices", help="of the router")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    parser.add_argument("--silent", action="store_true", help="servers do not tell the router how they are")
    parser.add_argument("--name", default="fleet-speed", help="of the file of results; '' for none")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.members.split(",")]
    parts = arguments.parts.split(",")
    result: dict[str, Any] = {"machine": machine_facts(), "settings": vars(arguments)}
    with tempfile.TemporaryDirectory() as folder:
        most = max(counts) if "scaling" in parts else SLOW_COUNT
        fleet = Fleet(Path(folder), most, arguments.policy, not arguments.silent)
        try:
            fleet.start(with_slow="slow" in parts)
            if "scaling" in parts:
                result["scaling"] = scaling(fleet, counts, arguments.rounds, arguments.window_s)
            if "slow" in parts:
                result["slow"] = slow(fleet, arguments.rounds, arguments.window_s * 2)
        finally:
            fleet.end()
    if "scaling" in parts and not arguments.no_page:
        write_page("scaling", table(result["scaling"]), PAGE)
    result["load_average_at_end"] = os.getloadavg()[0]
    if arguments.name:
        path = RESULTS / f"{datetime.date.today().isoformat()}-{arguments.name}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
