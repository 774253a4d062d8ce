"""What a batching strategy that is a shared object costs: on the loop, and end to end.

    python benchmarks/shared_object_strategy.py [--rounds N] [--skip-server] [--out FILE]

Volume batching in C (`examples/batching_strategy_c`) is asked about runs of 1, 8 and 64 requests with one
small input, in an attempt of its own each time, and so is the strategy `volume`, which is Python. Measured is
how long the loop is held up: alone, and beside a thread that computes in Python and never waits. Designs take
turns of 60 ms. Shorter ones would mislead: whoever has had the interpreter for its interval must give it up
at the next call that allows it, and that call would pay for what ran before it. The quickest turn of a design
says what it costs, the median what it costs beside whatever else this machine does.

Then processor time: what a request costs the loop from its arrival in a queue to its batch, without a
strategy and with each of the two, for batches of 1, 3 and 32; the least of the rounds.

Last a server with two models, one of them with the strategy, is asked over HTTP in turns: what perf_analyzer
sees, and the server's processor time for a request. Neighbours on the machine can only add to that time, so
the least of the rounds says most.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import load_generator
import tritonpy_batching_volume
from bench_servers import OURS_COMMAND, RunningServer, start
from machine_facts import machine_facts
from tritonpy.plugin import Backend, Batch, InferRequest, Model, Tensor
from tritonpy.plugin_manager import bind_object
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy_abi import load_shared_object
from tritonpy_abi.build import library
from tritonpy_abi.strategies.shared_strategy import OpenStrategy
from tritonpy_sdk.testing.shared_objects import compile_shared_object

SOURCE = Path(__file__).parent.parent / "examples/batching_strategy_c/volume.c"
SWITCH_INTERVAL_S = 0.0005  # the server's
RUNS = (1, 8, 64)
BATCHES = (1, 3, 32)
RUNS_IN_QUEUE = 200
TURN_NS = 60_000_000  # of each design, in each round
CONCURRENCIES = (8, 32)
BYTE_SIZE = 64
LIMIT = 1 << 20

CONFIG = """backend: "identity"
max_batch_size: 64
dynamic_batching {}
input [{ name: "INPUT0", data_type: TYPE_FP32, dims: [ 16 ] }]
output [{ name: "OUTPUT0", data_type: TYPE_FP32, dims: [ 16 ] }]
"""
STRATEGY = 'parameters [{ key: "MAX_BATCH_VOLUME_BYTES" value { string_value: "1048576" } }]\n'

Scan = Callable[[Sequence[InferRequest]], object]
Found = dict[str, dict[str, float]]


def main() -> int:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--window-ms", type=int, default=700, help="of perf_analyzer; there are three")
    parser.add_argument("--skip-server", action="store_true", help="leave the part end to end out")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_shared_object(SOURCE, Path(folder) / "volume.so", "-O2")
        results: dict[str, Any] = {
            "machine": machine_facts(),
            "switch_interval_s": SWITCH_INTERVAL_S,
            "us_per_run": designs(compiled, options.rounds),
            "queue_cpu_us_per_request": queues(compiled, options.rounds),
        }
        if not options.skip_server:
            results["end_to_end"] = end_to_end(compiled, Path(folder), options.rounds, options.window_ms)
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    if options.out is not None:
        options.out.write_text(text)
    return 0


def designs(compiled: Path, rounds: int) -> dict[str, dict[str, Found]]:
    """What each design costs for a run of so many requests."""
    shared = opened(load_shared_object("batching", str(compiled)))
    python = opened(tritonpy_batching_volume)
    strategy: OpenStrategy = shared._batcher.state
    scans: dict[str, Scan] = {
        "one call for each scan": each_scan(strategy),
        "one call for each request": each_request(strategy),
        "one call for each scan, keeping the interpreter": keeping(strategy),
        "in Python": in_python(python),
        "one call for each scan, as the batcher makes it": as_batcher(shared),
        "in Python, as the batcher calls it": as_batcher(python),
        "admission of the requests": admission(shared),
    }
    found: dict[str, dict[str, Found]] = {}
    for count in RUNS:
        requests = [make_request() for _ in range(count)]
        admission(shared)(requests)
        found[f"{count} requests"] = {"alone": turns(scans, requests, rounds)}
        with busy_thread():
            found[f"{count} requests"]["beside a busy thread"] = turns(scans, requests, rounds)
    shared.close()
    python.close()
    return found


def opened(plugin: object) -> BoundStrategy:
    """A strategy at work for a model, as the server has it."""
    config = {
        "name": "m",
        "max_batch_size": 64,
        "output": [{"name": "OUTPUT0"}],
        "parameters": {"MAX_BATCH_VOLUME_BYTES": {"string_value": str(LIMIT)}},
    }
    model = Model("m", 1, config, Path("/models/m"), Backend("identity"))
    strategy = BoundStrategy("volume", bind_object("batching", plugin, "volume"), model)
    strategy.open()
    return strategy


def make_request() -> InferRequest:
    """A request of 64 bytes."""
    return InferRequest("m", {"INPUT0": Tensor("INPUT0", "FP32", (1, 16), bytes(BYTE_SIZE))})


def each_scan(strategy: OpenStrategy) -> Scan:
    """An attempt at a batch that takes all."""

    def scan(requests: Sequence[InferRequest]) -> object:
        included = strategy.include(requests)
        strategy.end()
        return included

    return scan


def each_request(strategy: OpenStrategy) -> Scan:
    """The same with a call for each request."""

    def scan(requests: Sequence[InferRequest]) -> object:
        count = sum(strategy.include((request,)) == 1 for request in requests)
        strategy.end()
        return count

    return scan


def in_python(strategy: BoundStrategy) -> Scan:
    """The same in Python."""
    batcher = strategy._batcher

    def scan(requests: Sequence[InferRequest]) -> object:
        batch = Batch(batcher, tritonpy_batching_volume.model_batch_initialize(batcher))
        included = tritonpy_batching_volume.model_batch_include_requests(batch, requests)
        tritonpy_batching_volume.model_batch_finalize(batch)
        return included

    return scan


def as_batcher(strategy: BoundStrategy) -> Scan:
    """With what stands between the dynamic batcher and a strategy."""

    def scan(requests: Sequence[InferRequest]) -> object:
        strategy.begin(requests[0])
        included, _ = strategy.accept(requests)
        strategy.end()
        return included

    return scan


def keeping(strategy: OpenStrategy) -> Scan:
    """The same calls through ctypes, which does not let other threads have the interpreter meanwhile."""
    functions = ctypes.PyDLL(str(library()))
    include, end = functions.TRITONPY_BatchInclude, functions.TRITONPY_BatchEnd
    include.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
    include.restype = ctypes.c_uint32
    end.argtypes = (ctypes.c_void_p,)
    end.restype = ctypes.c_void_p
    ffi = strategy._shim.ffi
    array = ffi.new("TRITONBACKEND_Request *[]", max(RUNS))
    handle, places, error = (
        int(ffi.cast("uintptr_t", pointer)) for pointer in (strategy._strategy, array, strategy._error)
    )

    def scan(requests: Sequence[InferRequest]) -> object:
        count = len(requests)
        array[0:count] = [request.batching_state[0] for request in requests]
        included: object = include(handle, places, count, error)
        assert end(handle) is None
        return included

    return scan


def admission(strategy: BoundStrategy) -> Scan:
    """What is done once for each request, when it is queued."""

    def scan(requests: Sequence[InferRequest]) -> object:
        for request in requests:
            strategy.admit(request)
        return len(requests)

    return scan


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that computes in Python all the time."""
    is_over = threading.Event()

    def compute() -> None:
        number = 0
        while not is_over.is_set():
            for _ in range(1000):
                number = number * 3 % 1_000_003 + 1

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def turns(scans: Mapping[str, Scan], requests: Sequence[InferRequest], rounds: int) -> Found:
    """Let the designs take turns; microseconds for a run of requests."""
    taken: dict[str, list[float]] = {name: [] for name in scans}
    for _ in range(rounds):
        for name, scan in scans.items():
            taken[name].append(turn(scan, requests))
    return {
        name: {"least": round(min(values), 2), "median": round(statistics.median(values), 2)}
        for name, values in taken.items()
    }


def turn(scan: Scan, requests: Sequence[InferRequest]) -> float:
    """How long a scan takes on the average, in microseconds."""
    count = 0
    begin = time.perf_counter_ns()
    end = begin + TURN_NS
    while (now := time.perf_counter_ns()) < end:
        assert scan(requests) == len(requests)
        count += 1
    return (now - begin) / count / 1000


def queues(compiled: Path, rounds: int) -> dict[str, dict[str, float]]:
    """What requests cost from their arrival to their batch."""
    shared = opened(load_shared_object("batching", str(compiled)))
    python = opened(tritonpy_batching_volume)
    policies = {
        "without a strategy": DynamicPolicy(max_batch_size=64),
        "with one in C": DynamicPolicy(max_batch_size=64, strategy=shared),
        "with one in Python": DynamicPolicy(max_batch_size=64, strategy=python),
    }
    found = {}
    for count in BATCHES:
        taken: dict[str, list[float]] = {name: [] for name in policies}
        for _ in range(rounds * 5):
            for name, policy in policies.items():
                taken[name].append(queue(policy, count))
        found[f"batches of {count}"] = {name: round(min(values), 2) for name, values in taken.items()}
    shared.close()
    python.close()
    return found


def queue(policy: DynamicPolicy, count: int) -> float:
    """Processor time of a request, in microseconds."""
    runs = [[make_request() for _ in range(count)] for _ in range(RUNS_IN_QUEUE)]
    begin = time.thread_time_ns()
    for requests in runs:
        for request in requests:
            policy.add(request)
        policy.decide(0)
    return (time.thread_time_ns() - begin) / count / RUNS_IN_QUEUE / 1000


def end_to_end(compiled: Path, folder: Path, rounds: int, window_ms: int) -> list[dict[str, object]]:
    """A model with the strategy and one without, asked in turns."""
    repository = folder / "models"
    for name, more in (("without", ""), ("with", STRATEGY)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG + more)
    (repository / "with" / "batchstrategy.so").write_bytes(compiled.read_bytes())
    server = start("ours", OURS_COMMAND, repository, folder / "log")
    try:
        return [ask(server, concurrency, rounds, window_ms) for concurrency in CONCURRENCIES]
    finally:
        server.stop()


def ask(server: RunningServer, concurrency: int, rounds: int, window_ms: int) -> dict[str, object]:
    """The ratios of one concurrency, with against without; from each round and their median."""
    ratios: dict[str, list[float]] = {"infer_per_s": [], "server_cpu_us": []}
    spent: dict[str, list[float]] = {"without": [], "with": []}
    rows = []
    for number in range(rounds):
        order = ("with", "without") if number % 2 else ("without", "with")
        row = {
            name: load_generator.measure(
                server,
                load_generator.Load(name, "http", concurrency, byte_size=BYTE_SIZE),
                window_ms,
            )
            for name in order
        }
        rows.append({name: [round(row[name].infer_per_s), row[name].server_cpu_us] for name in order})
        ratios["infer_per_s"].append(row["with"].infer_per_s / row["without"].infer_per_s)
        if row["with"].server_cpu_us and row["without"].server_cpu_us:
            ratios["server_cpu_us"].append(row["with"].server_cpu_us / row["without"].server_cpu_us)
            for name in order:
                spent[name].append(row[name].server_cpu_us or 0)
    return {
        "concurrency": concurrency,
        "ratio_with_to_without": {
            name: round(statistics.median(values), 3) for name, values in ratios.items() if values
        },
        "least_server_cpu_us": {name: min(values) for name, values in spent.items() if values},
        "infer_per_s_and_cpu_us_of_each_round": rows,
    }


if __name__ == "__main__":
    raise SystemExit(main())
