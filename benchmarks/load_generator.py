"""Drive a server with the real perf_analyzer and read what it measured.

perf_analyzer's own stability search is switched off: exactly three windows of a fixed length are measured and
merged. Its `--request-count` is avoided for what we saw it do: it counts whole seconds (8,000 requests in
1.6 s come out as 4,000/s), and once it never returned although all answers had arrived. Now and then it finds
no valid requests in its windows while a probe beside it is answered all along; that run is repeated and
counted.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import process_tree
from bench_servers import LAUNCHER, RunningServer

WINDOWS = 3
NO_REQUESTS = "No valid requests recorded within time interval"
MAX_REPEATS = 2
ANY_SPREAD = "9999"  # per cent two windows may differ before perf_analyzer would ask for more of them


class LoadFailed(Exception):
    """perf_analyzer did not deliver a measurement; the text says what it printed."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a server: one model, one protocol, so many requests in flight, tensors of one size."""

    model_name: str
    protocol: str  # "http" or "grpc"
    concurrency: int
    input_name: str = ""  # of the input whose shape has to be told; empty where the configuration fixes all
    shape: str = ""  # dimensions without the batch, as "16" or "3,64,64"
    byte_size: int = 0  # of all inputs of a request together
    batch_size: int = 1
    string_length: int | None = None  # of each random string, for inputs that are strings
    is_streaming: bool = False  # over the stream, not by single calls; gRPC only
    is_shared_memory: bool = False  # tensors lie in the system's shared memory
    input_values: tuple[tuple[str, int], ...] = ()  # of inputs that must not be random

    @property
    def title(self) -> str:
        """How tables call it."""
        how = f"{' stream' if self.is_streaming else ''}{' shm' if self.is_shared_memory else ''}"
        size = f"{self.byte_size >> 20} MiB" if self.byte_size >= 1 << 20 else f"{self.byte_size:,} B"
        return f"{self.model_name} {self.protocol}{how} c={self.concurrency} {size}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of perf_analyzer found, and what it cost the server."""

    infer_per_s: float
    p50_us: float
    p99_us: float
    request_count: int  # inside the windows
    server_cpu_us: float | None  # per request, over the whole run; None if the server does not count requests
    idle_server_cpu_percent: float | None  # of one core, used meanwhile by the server that had nothing to do
    repeats: int  # runs thrown away because perf_analyzer found nothing in its windows


def measure(
    server: RunningServer, load: Load, window_ms: int, idle: RunningServer | None = None
) -> Measurement:
    """Run perf_analyzer against `server` and return what it found.

    Raises:
        LoadFailed: it failed, took far too long, or left no numbers.
    """
    for repeats in range(MAX_REPEATS + 1):
        try:
            return _measure_once(server, load, window_ms, idle, repeats)
        except LoadFailed as error:
            if NO_REQUESTS not in str(error):
                raise
            last = error
    raise last


def _measure_once(
    server: RunningServer, load: Load, window_ms: int, idle: RunningServer | None, repeats: int
) -> Measurement:
    """Run perf_analyzer and read the server's processor time before and after."""
    count_before = _success_count(server, load.model_name)
    cpu_before_us = process_tree.cpu_time_us(server.root_pid)
    idle_before_us = process_tree.cpu_time_us(idle.root_pid) if idle else 0
    started = time.monotonic()

    row, request_count = _run_perf_analyzer(server, load, window_ms)

    wall_us = (time.monotonic() - started) * 1e6
    idle_us = process_tree.cpu_time_us(idle.root_pid) - idle_before_us if idle else 0
    cpu_us = process_tree.cpu_time_us(server.root_pid) - cpu_before_us
    answered = (_success_count(server, load.model_name) or 0) - (count_before or 0)
    # The CPU time spans the whole run, so it is divided by the server's count of the whole run. One that is
    # smaller than what the windows saw cannot be right.
    server_cpu_us = cpu_us / answered if answered >= request_count > 0 else None
    return Measurement(
        infer_per_s=float(row["Inferences/Second"]),
        p50_us=float(row["p50 latency"]),
        p99_us=float(row["p99 latency"]),
        request_count=request_count,
        server_cpu_us=None if server_cpu_us is None else round(server_cpu_us, 1),
        idle_server_cpu_percent=round(100 * idle_us / wall_us, 1) if idle else None,
        repeats=repeats,
    )


def _run_perf_analyzer(server: RunningServer, load: Load, window_ms: int) -> tuple[dict[str, str], int]:
    """Run the program and return its CSV row and the number of requests inside its windows."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.csv"
        options: dict[str, object] = {
            "-m": load.model_name,
            "-i": load.protocol,
            "-u": server.url(load.protocol),
            "-b": load.batch_size,
            "--concurrency-range": load.concurrency,
            "--measurement-interval": window_ms,
            "--stability-percentage": ANY_SPREAD,
            "--max-trials": WINDOWS,
            "-f": report,
        }
        if load.input_name:
            options["--shape"] = f"{load.input_name}:{load.shape}"
        if load.string_length is not None:
            options["--string-length"] = load.string_length
        if load.is_shared_memory:
            options["--shared-memory"] = "system"
            options["--output-shared-memory-size"] = load.byte_size
        if load.input_values:
            values = Path(folder) / "values.json"
            values.write_text(json.dumps({"data": [{name: [value] for name, value in load.input_values}]}))
            options["--input-data"] = values
        words = [str(word) for pair in options.items() for word in pair]
        if load.is_streaming:
            words.append("--streaming")
        limit_s = 30 + 3 * WINDOWS * window_ms / 1000
        try:
            done = subprocess.run(
                [sys.executable, str(LAUNCHER), "perf", "--", *words],
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired as error:
            raise LoadFailed(f"perf_analyzer did not end within {limit_s:g} s") from error
        if done.returncode != 0 or not report.exists():
            lines = (done.stdout + done.stderr).strip().splitlines()
            raise LoadFailed(f"perf_analyzer, exit code {done.returncode}: {' / '.join(lines[-4:])}")
        rows = list(csv.DictReader(report.read_text().splitlines()))
    counts = [line.split(":")[1] for line in done.stdout.splitlines() if "Request count:" in line]
    if len(rows) != 1 or not counts:
        raise LoadFailed(f"perf_analyzer reported {len(rows)} rows and {len(counts)} request counts")
    return rows[0], int(counts[0])  # the first count is the client's, a second one the server's


def _success_count(server: RunningServer, model_name: str) -> int | None:
    """Return the server's own count of answered requests, None where it does not keep one."""
    try:
        return server.success_count(model_name)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
