"""What is left of TensorFlow's speed end to end, and what instances hold in memory.

A convolutional model gets full batches over HTTP from a few connections at a time, and the rows per second
are compared with a bare loop that calls the same session with the same batch; both in turns, and the median
of the rounds' ratios counts. Beside it stands the CPU time of a row, in the server's processes and in the
bare loop, which other load on the machine changes less. Then a model with 64 MiB of weights is served with
one and several instances, on threads and in processes, and the memory of the server's processes is told once
they have answered. Needs `tensorflow`:

    python benchmarks/tensorflow_served.py --output benchmarks/results/tensorflow_served.json
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import process_tree
from bench_servers import RunningServer, start
from machine_facts import machine_facts
from tritonpy.plugin import InferRequest, Tensor
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver

# Before TensorFlow is imported, as the backend does it: else the bare loop computes on a pool of all
# processors, and the served session on the one thread that its model asks for.
os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
import tensorflow as tf
from tensorflow_calls import SHAPES, write_models

COMMAND = (
    "{corectl} serve --model-repository {repository} --http-port {http} --grpc-port {grpc} "
    "--metrics-port {metrics}"
)
CONNECTIONS = 3
PROCESS = {"TRITONPY_ISOLATION": {"string_value": "process"}}
OWN_SESSIONS = {"MAX_SESSION_SHARE_COUNT": {"string_value": "1"}}
INSTANCES: dict[str, tuple[int, dict[str, dict[str, str]]]] = {
    "1 thread": (1, {}),
    "4 threads": (4, {}),
    "4 threads, own sessions": (4, OWN_SESSIONS),
    "1 process": (1, PROCESS),
    "2 processes": (2, PROCESS),
}
WEIGHTS = 4096  # squared, of 4 bytes


def body_of(batch: np.ndarray) -> tuple[bytes, dict[str, str]]:
    """The body of a request with one binary tensor, and its headers."""
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": batch.shape,
        "parameters": {"binary_data_size": batch.nbytes},
    }
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return header + batch.tobytes(), {"Inference-Header-Content-Length": str(len(header))}


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows per second, and CPU time for a row."""

    rows_per_s: float
    cpu_us: float


def served_rate(server: RunningServer, name: str, batch: np.ndarray, seconds: float) -> Rate:
    """Rows over some connections, each with one request at a time; the CPU time is the server's."""
    body, headers = body_of(batch)
    counts = [0] * CONNECTIONS
    end = time.perf_counter() + seconds

    def ask(index: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)
        while time.perf_counter() < end:
            connection.request("POST", f"/v2/models/{name}/infer", body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status}")
            counts[index] += 1
        connection.close()

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(CONNECTIONS)]
    begin, cpu = time.perf_counter(), process_tree.cpu_time_us(server.root_pid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = sum(counts) * len(batch)
    return Rate(
        rows / (time.perf_counter() - begin), (process_tree.cpu_time_us(server.root_pid) - cpu) / rows
    )


def bare_rate(call: Callable[[np.ndarray], object], batch: np.ndarray, seconds: float) -> Rate:
    """Rows of a loop that only calls."""
    count, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        call(batch)
        count += 1
    rows = count * len(batch)
    return Rate(rows / (time.perf_counter() - begin), (time.process_time() - cpu) / rows * 1e6)


def speed(folder: Path, rounds: int, seconds: float) -> dict[str, object]:
    """Rows per second in both ways, and the ratio."""
    shape = SHAPES["conv"]
    batch = np.random.default_rng(0).random(shape, np.float32)
    config = f"backend: 'tensorflow' max_batch_size: {shape[0]} parameters {{ key: 'TF_NUM_INTRA_THREADS' "
    config += "value { string_value: '1' } } instance_group [ { kind: KIND_CPU count: 1 } ]"
    write_models(folder)
    (folder / "conv/config.pbtxt").write_text(config)
    driver = BackendDriver("tensorflow", folder)
    server = start("ours", COMMAND, folder, folder.parent / "speed.log")
    try:
        with driver.load("conv") as model:
            request = InferRequest("conv", {"x": Tensor.from_numpy("x", batch)})
            request.batch_size = len(batch)
            model.execute([request])
            (bare,) = model.instances[0].state._graph._callables.values()
            served_rate(server, "conv", batch, seconds)
            found = []
            for index in range(rounds):
                ways = [
                    lambda: bare_rate(bare, batch, seconds),
                    lambda: served_rate(server, "conv", batch, seconds),
                ]
                turn = -1 if index % 2 else 1  # neither always follows the other
                found.append([way() for way in ways[::turn]][::turn])
    finally:
        server.stop()
    bares, serveds = zip(*found, strict=True)
    return {
        "batch": list(shape),
        "connections": CONNECTIONS,
        "bare_rows_per_s": round(statistics.median(rate.rows_per_s for rate in bares), 1),
        "served_rows_per_s": round(statistics.median(rate.rows_per_s for rate in serveds), 1),
        "share": round(statistics.median(served.rows_per_s / bare.rows_per_s for bare, served in found), 3),
        "shares": [round(served.rows_per_s / bare.rows_per_s, 3) for bare, served in found],
        "bare_cpu_us_per_row": round(statistics.median(rate.cpu_us for rate in bares), 1),
        "served_cpu_us_per_row": round(statistics.median(rate.cpu_us for rate in serveds), 1),
    }


def memory(folder: Path) -> dict[str, dict[str, object]]:
    """What the processes of a server hold, by kinds of instances of a model with 64 MiB of weights."""

    class Large(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.random.normal([WEIGHTS, WEIGHTS]))

        @tf.function(input_signature=[tf.TensorSpec([None, WEIGHTS], tf.float32, name="x")])
        def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x @ self.weights}

    module = Large()
    path = folder / "large/1/model.savedmodel"
    tf.saved_model.save(module, str(path), signatures=module.call)
    body = body_of(np.ones((1, WEIGHTS), np.float32))
    found: dict[str, dict[str, object]] = {}
    for kind, (count, parameters) in INSTANCES.items():
        config = {
            "backend": "tensorflow",
            "max_batch_size": 4,
            "instance_group": [{"kind": "KIND_CPU", "count": count}],
            "parameters": parameters,
        }
        ModelRepository(folder).model("large", config)
        server = start("ours", COMMAND, folder, folder.parent / "memory.log")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)
            for _ in range(8 * count):
                connection.request("POST", "/v2/models/large/infer", *body)
                assert len(connection.getresponse().read()) > 4 * WEIGHTS
            held = process_tree.memory(server.root_pid)
        finally:
            server.stop()
        found[kind] = {"processes": held.processes, "rss_mib": held.rss_mib, "pss_mib": held.pss_mib}
        print(kind, found[kind], file=sys.stderr)
    return found


def main() -> None:
    """Measure both, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "speed").mkdir()
        (Path(folder) / "memory").mkdir()
        result = {
            "machine": facts,
            "tensorflow": tf.__version__,
            "full_batches": speed(Path(folder) / "speed", options.rounds, options.seconds),
            "instances_of_64_mib": memory(Path(folder) / "memory"),
        }
    print(json.dumps(result, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
