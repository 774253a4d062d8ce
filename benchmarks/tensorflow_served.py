"""What is left of TensorFlow's speed end to end, and what instances hold in memory.

A convolutional model gets full batches over HTTP, beside a bare loop that calls the same session, and beside
the same calls behind sockets; see `served_share`. Once with one thread and one instance, which leaves a core
for all else on a machine with two, and once with nothing configured: two instances, whose operators use all
cores, as the bare loop's do. Then a model with 64 MiB of weights is served with one and several instances, on
threads and in processes, and the memory of the server's processes is told once they have answered. Needs
`tensorflow`:

    python benchmarks/tensorflow_served.py --output benchmarks/results/tensorflow_served.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import process_tree
from bench_servers import start
from machine_facts import machine_facts
from served_share import Batches, Client, compare
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
THREADS = {
    "one thread": "parameters { key: 'TF_NUM_INTRA_THREADS' value { string_value: '1' } } "
    "instance_group [ { kind: KIND_CPU count: 1 } ]",
    "defaults": "",
}
"""What the model's configuration says, for the server and for the loop beside it."""

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


def speed(folder: Path, configuration: str, rounds: int, seconds: float) -> dict[str, object]:
    """The rates of the convolutional model in full batches; see `served_share`."""
    shape = SHAPES["conv"]
    batch = np.random.default_rng(0).random(shape, np.float32)
    folder.mkdir()
    write_models(folder)
    (folder / "conv/config.pbtxt").write_text(
        f"backend: 'tensorflow' max_batch_size: {shape[0]} {configuration}"
    )
    driver = BackendDriver("tensorflow", folder)
    with driver.load("conv") as model:
        request = InferRequest("conv", {"x": Tensor.from_numpy("x", batch)})
        request.batch_size = len(batch)
        model.execute([request])
        (bare,) = model.instances[0].state._graph._callables.values()
        server = start("ours", COMMAND, folder, folder.with_suffix(".log"))
        try:
            return compare(bare, server, Batches("conv", "x", batch), rounds, seconds)
        finally:
            server.stop()


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
    request = Batches("large", "x", np.ones((1, WEIGHTS), np.float32)).request()
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
            client = Client(server.ports["http"], request)
            client.run(count)
            client.close()
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
    parser.add_argument("--part", choices=["full_batches", "instances"], help="default: both")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result: dict[str, object] = {"machine": machine_facts(), "tensorflow": tf.__version__}
    with tempfile.TemporaryDirectory() as folder:
        if options.part != "instances":
            result["full_batches"] = {
                name: speed(Path(folder, name), configuration, options.rounds, options.seconds)
                for name, configuration in THREADS.items()
            }
        if options.part != "full_batches":
            Path(folder, "memory").mkdir()
            result["instances_of_64_mib"] = memory(Path(folder, "memory"))
    print(json.dumps(result, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
