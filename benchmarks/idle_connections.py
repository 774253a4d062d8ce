"""What clients cost that are connected and say nothing: memory, and the time of those who do.

Opens idle connections, each of which has asked one thing and then stays: HTTP with keep-alive, and gRPC
channels that share nothing. A busy client, one connection with one request after the other, is measured in
turns with and without them.

    python benchmarks/idle_connections.py [--http 2000] [--grpc 200] [--rounds 9] [--name NAME]

The open files of a process must allow it: see `ulimit -n`.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import process_tree
from bench_servers import OURS_COMMAND, RunningServer, start
from machine_facts import machine_facts
from tritonclient.grpc import service_pb2, service_pb2_grpc

RESULTS = Path(__file__).with_name("results")
MOST_MIB = 100.0
MOST_SLOWER = 0.10
ASK = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
CONFIG = """
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""


def hold(http_port: int, grpc_port: int, http_count: int, grpc_count: int) -> None:
    """Open the idle connections, say so, and keep them until standard input ends."""
    held: list[Any] = []  # sockets and channels
    for _ in range(http_count):
        connection = socket.create_connection(("127.0.0.1", http_port), timeout=30)
        connection.sendall(ASK)
        if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
            sys.exit("an idle HTTP client was refused")
        held.append(connection)
    for _ in range(grpc_count):
        channel = grpc.insecure_channel(
            f"127.0.0.1:{grpc_port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        if not stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=30).live:
            sys.exit("an idle gRPC client was refused")
        held.append(channel)
    print("ready", flush=True)
    sys.stdin.read()


@contextmanager
def idle_connections(server: RunningServer, http_count: int, grpc_count: int) -> Iterator[None]:
    """Hold idle connections in a process of their own."""
    ports = [str(server.ports["http"]), str(server.ports["grpc"])]
    counts = [str(http_count), str(grpc_count)]
    with subprocess.Popen(
        [sys.executable, __file__, "--hold", *ports, *counts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise SystemExit("the idle connections could not be opened")
        yield
        holder.stdin.close()


class BusyClient:
    """One connection that asks the model again as soon as it has its answer."""

    def __init__(self, server: RunningServer) -> None:
        self._server_pid = server.root_pid
        document = {
            "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [16], "data": [1.0] * 16}],
            "parameters": {"binary_data_output": True},
        }
        body = json.dumps(document).encode()
        self._request = (
            b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        ) + body
        self._socket = socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def measure(self, seconds: float) -> dict[str, float]:
        """Keep the connection busy; return the rate, the times of an answer, and its cost to the server."""
        took_us = []
        cpu_us = process_tree.cpu_time_us(self._server_pid)
        begun = now = time.perf_counter()
        while now - begun < seconds:
            self._socket.sendall(self._request)
            if not self._socket.recv(65536).startswith(b"HTTP/1.1 200"):
                raise SystemExit("the busy client was refused")
            before, now = now, time.perf_counter()
            took_us.append((now - before) * 1e6)
        took_us.sort()
        return {
            "infer_per_s": round(len(took_us) / (now - begun), 1),
            "p50_us": round(took_us[len(took_us) // 2], 1),
            "p99_us": round(took_us[len(took_us) * 99 // 100], 1),
            "server_cpu_us": round((process_tree.cpu_time_us(self._server_pid) - cpu_us) / len(took_us), 1),
        }


def settled_memory(server: RunningServer) -> process_tree.TreeMemory:
    """The server's memory once it has stopped changing."""
    before = process_tree.memory(server.root_pid)
    for _ in range(20):
        time.sleep(0.5)
        now = process_tree.memory(server.root_pid)
        if abs(now.rss_mib - before.rss_mib) < 0.1:
            return now
        before = now
    return before


def measure(server: RunningServer, options: argparse.Namespace) -> dict[str, Any]:
    """Memory first, on a server that has answered but never had many clients; then speed, in turns."""
    busy = BusyClient(server)
    busy.measure(2.0)
    with idle_connections(server, 1, 1):  # what the first ones of a kind load does not belong to each
        pass
    alone = settled_memory(server)
    costs = {}
    for kind, counts in {
        "http": (options.http, 0),
        "grpc": (0, options.grpc),
        "both": (options.http, options.grpc),
    }.items():
        before = settled_memory(server)
        with idle_connections(server, *counts):
            crowded = settled_memory(server)
            costs[kind] = {
                "rss_mib": round(crowded.rss_mib - before.rss_mib, 1),
                "rss_mib_since_start": round(crowded.rss_mib - alone.rss_mib, 1),
            }
    rounds = []
    for number in range(options.rounds):
        row: dict[str, dict[str, float]] = {}
        order = ["alone", "crowded"] if number % 2 == 0 else ["crowded", "alone"]
        for name in order:
            if name == "alone":
                row[name] = busy.measure(options.seconds)
            else:
                with idle_connections(server, options.http, options.grpc):
                    time.sleep(0.5)  # until the kernel has settled what was opened
                    row[name] = busy.measure(options.seconds)
            time.sleep(0.5)
        rounds.append(row)
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    slower = {
        field: round(statistics.median(row["crowded"][field] / row["alone"][field] for row in rounds), 3)
        for field in ("infer_per_s", "p50_us", "p99_us", "server_cpu_us")
    }
    return {
        "memory_alone_mib": {"rss": round(alone.rss_mib, 1), "pss": alone.pss_mib},
        "memory_cost": costs,
        "crowded_over_alone": slower,
        "rounds": rounds,
    }


def main() -> None:
    """Start a server, measure, print and write the file."""
    if "--hold" in sys.argv:
        hold(*(int(value) for value in sys.argv[sys.argv.index("--hold") + 1 :]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--http", type=int, default=2000, help="idle HTTP connections")
    parser.add_argument("--grpc", type=int, default=200, help="idle gRPC channels")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--name", default="idle-connections")
    options = parser.parse_args()
    needed = options.http + options.grpc + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise SystemExit(f"{needed} open files are needed and {hard} are allowed: raise `ulimit -n`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "models/echo"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG)
        server = start("ours", OURS_COMMAND, model.parent, Path(folder) / "server.log")
        try:
            found = measure(server, options)
        finally:
            server.stop()

    cost_mib = max(found["memory_cost"]["both"].values())
    rate = found["crowded_over_alone"]["infer_per_s"]
    print(
        f"{options.http} HTTP connections and {options.grpc} gRPC channels: "
        f"{cost_mib} MiB (at most {MOST_MIB})"
    )
    print(f"  HTTP alone {found['memory_cost']['http']}, gRPC alone {found['memory_cost']['grpc']}")
    print(f"a busy client beside them: {rate:.3f} of its rate (at least {1 - MOST_SLOWER})")
    print(f"  crowded/alone, medians over the rounds: {found['crowded_over_alone']}")
    document = {
        "what": "idle connections",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "settings": {name: getattr(options, name) for name in ("http", "grpc", "rounds", "seconds")},
        **found,
    }
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    if cost_mib > MOST_MIB or rate < 1 - MOST_SLOWER:
        raise SystemExit("one of the limits is missed")


if __name__ == "__main__":
    main()
