"""What a call of a model costs inside the program that serves it, beside the same call over HTTP and gRPC.

A bound function returns its input. It is asked in this process without a socket, and in a server process of
its own by tritonclient, by one caller who waits for each answer; the kinds of calls take turns. Times are
wall times of one call; `CPU` is the processor time of caller and server together:

    python benchmarks/local_calls.py --output benchmarks/results/local-calls.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import process_tree
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from bench_servers import free_port
from machine_facts import machine_facts
from tritonpy.options import ServerOptions
from tritonpy_sdk import Server, Tensor, batch

SIZES = {"64 B": 16, "1 MiB": 1 << 18}
Array = np.ndarray[Any, Any]


@batch
def identity(INPUT0: Array) -> dict[str, Array]:
    """Return the input."""
    return {"OUTPUT0": INPUT0}


def bind(server: Server) -> None:
    """Bind the model under the name `identity`."""
    server.bind(
        "identity",
        identity,
        [Tensor((-1,), np.float32, "INPUT0")],
        [Tensor((-1,), np.float32, "OUTPUT0")],
        fresh_outputs=True,
    )


def serve(http_port: int, grpc_port: int) -> None:
    """The other process: serves until SIGTERM."""
    options = ServerOptions((), http_port=http_port, grpc_port=grpc_port, allow_metrics=False)
    server = Server(options)
    bind(server)
    server.serve()


class LocalCalls:
    """Calls of the model in this process."""

    def __init__(self) -> None:
        self._server = Server(ServerOptions((), allow_http=False, allow_grpc=False, allow_metrics=False))
        bind(self._server)
        self._server.start()
        self._model = self._server.model("identity")

    def infer(self, array: Array) -> Array:
        """One call from a thread."""
        return np.asarray(self._model.infer({"INPUT0": array})["OUTPUT0"])

    async def infer_async(self, array: Array) -> Array:
        """One call from an event loop of the program."""
        return np.asarray((await self._model.infer_async({"INPUT0": array}))["OUTPUT0"])

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()


class RemoteCalls:
    """Calls of the model in another process."""

    def __init__(self) -> None:
        ports = free_port(), free_port()
        self._process = subprocess.Popen([sys.executable, __file__, "--serve", *map(str, ports)])
        self.pid = self._process.pid
        self._http = http_client.InferenceServerClient(f"127.0.0.1:{ports[0]}")
        self._grpc = grpc_client.InferenceServerClient(f"127.0.0.1:{ports[1]}")
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self._http.is_model_ready("identity"):
                    return
            except OSError:
                pass  # not listening yet
            time.sleep(0.05)
        raise SystemExit("the server was not ready")

    def http(self, array: Array) -> Array:
        """One call over HTTP, with binary tensors."""
        given = http_client.InferInput("INPUT0", list(array.shape), "FP32")
        given.set_data_from_numpy(array)
        answer = self._http.infer("identity", [given])
        return np.asarray(answer.as_numpy("OUTPUT0"))

    def grpc(self, array: Array) -> Array:
        """One call over gRPC."""
        given = grpc_client.InferInput("INPUT0", list(array.shape), "FP32")
        given.set_data_from_numpy(array)
        return np.asarray(self._grpc.infer("identity", [given]).as_numpy("OUTPUT0"))

    def stop(self) -> None:
        """Stop the other process."""
        self._http.close()
        self._grpc.close()
        self._process.terminate()
        self._process.wait(30)


async def _repeated(call: Callable[[Array], Awaitable[Array]], array: Array, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        await call(array)
        times.append(time.perf_counter() - begin)
    return times


def measure(
    call: Callable[[Array], Any], array: Array, calls: int, server_pid: int | None
) -> dict[str, float]:
    """Microseconds of one call: the median, the 99th percentile, and CPU of all processes taking part."""
    if asyncio.iscoroutinefunction(call):
        assert np.array_equal(asyncio.run(call(array)), array)
    else:
        assert np.array_equal(call(array), array)
    before_us = time.process_time() * 1e6 + (process_tree.cpu_time_us(server_pid) if server_pid else 0)
    if asyncio.iscoroutinefunction(call):
        times = asyncio.run(_repeated(call, array, calls))
    else:
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            call(array)
            times.append(time.perf_counter() - begin)
    after_us = time.process_time() * 1e6 + (process_tree.cpu_time_us(server_pid) if server_pid else 0)
    times.sort()
    return {
        "p50_us": round(times[len(times) // 2] * 1e6, 1),
        "p99_us": round(times[int(len(times) * 0.99)] * 1e6, 1),
        "cpu_us": round((after_us - before_us) / calls, 1),
    }


def main() -> None:
    """Measure in turns, print medians, write the file."""
    parser = argparse.ArgumentParser(description="What a call inside the program costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1000, help="in each round, of 64 B; of 1 MiB a fifth")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--serve", nargs=2, type=int, metavar=("HTTP", "GRPC"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    machine = machine_facts()
    local, remote = LocalCalls(), RemoteCalls()
    kinds: dict[str, tuple[Callable[[Array], Any], int | None]] = {
        "infer": (local.infer, None),
        "infer_async": (local.infer_async, None),
        "HTTP": (remote.http, remote.pid),
        "gRPC": (remote.grpc, remote.pid),
    }
    rounds: dict[str, dict[str, list[dict[str, float]]]] = {
        size: {kind: [] for kind in kinds} for size in SIZES
    }
    try:
        for _ in range(options.rounds):
            for size, elements in SIZES.items():
                array = np.random.default_rng(0).random((1, elements), np.float32)
                calls = options.calls if elements < 1000 else max(options.calls // 5, 1)
                for kind, (call, pid) in kinds.items():
                    rounds[size][kind].append(measure(call, array, calls, pid))
    finally:
        remote.stop()
        local.stop()
    summary = {
        size: {
            kind: {field: statistics.median(row[field] for row in rows) for field in rows[0]}
            for kind, rows in by_kind.items()
        }
        for size, by_kind in rounds.items()
    }
    for size, by_kind in summary.items():
        for kind, row in by_kind.items():
            ratio = by_kind["HTTP"]["p50_us"] / row["p50_us"]
            print(
                f"{size:6} {kind:12} p50 {row['p50_us']:8,.0f} µs   p99 {row['p99_us']:8,.0f} µs"
                f"   CPU {row['cpu_us']:8,.0f} µs   {ratio:5.2f} times as quick as HTTP"
            )
    if options.output:
        result = {"machine": machine, "calls": options.calls, "summary": summary, "rounds": rounds}
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
