"""What the backend for TensorFlow costs a call, beside the bare callable of the same session.

A tiny dense network shows the overhead of one call, a convolutional one what is left of its speed in full
batches. Times are CPU times of the whole process for a call, the smallest of many rounds, because TensorFlow
computes on several threads; and `wall_us` beside them. With `--loads` the dense model is loaded and unloaded
so often, and the memory of the process is told five times. Needs `tensorflow`:

    python benchmarks/tensorflow_calls.py --loads 250 --output benchmarks/results/tensorflow_calls.json
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import tensorflow as tf
from machine_facts import machine_facts
from tritonpy.plugin import InferRequest, Tensor
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver

ROUNDS = 10
SHAPES = {"dense": (1, 16), "dense_pool": (1, 16), "conv": (16, 64, 64, 3)}


class Dense(tf.Module):
    """A network that takes microseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tf.Variable(tf.random.normal([16, 32]))
        self.second = tf.Variable(tf.random.normal([32, 8]))

    @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32, name="x")])
    def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.nn.relu(x @ self.first) @ self.second}


class Convolutional(tf.Module):
    """A network that takes a millisecond for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tf.Variable(tf.random.normal([3, 3, 3, 32]))
        self.second = tf.Variable(tf.random.normal([3, 3, 32, 32]))

    @tf.function(input_signature=[tf.TensorSpec([None, 64, 64, 3], tf.float32, name="x")])
    def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        for weights in (self.first, self.second):
            x = tf.nn.relu(tf.nn.conv2d(x, weights, 1, "SAME"))
        return {"y": tf.reduce_mean(x, [1, 2])}


def write_models(folder: Path) -> None:
    """Write all models."""
    for name in SHAPES:
        module = Convolutional() if name == "conv" else Dense()
        threads = {"TF_NUM_INTRA_THREADS": {"string_value": "1"}}
        if name == "dense_pool":  # handed to threads of TensorFlow, as a large graph is
            threads["TF_NUM_INTER_THREADS"] = {"string_value": "2"}
        config = {"backend": "tensorflow", "max_batch_size": 32, "parameters": threads}
        ModelRepository(folder).model(name, config, {})
        path = folder / name / "1/model.savedmodel"
        tf.saved_model.save(module, str(path), signatures=module.call)


def times_of(call: Callable[[], object], count: int) -> tuple[float, float]:
    """CPU time and wall time of one call in microseconds, the smallest of the rounds."""
    cpu, wall = [], []
    for _ in range(ROUNDS):
        begin = time.process_time(), time.perf_counter()
        for _ in range(count):
            call()
        cpu.append((time.process_time() - begin[0]) / count)
        wall.append((time.perf_counter() - begin[1]) / count)
    return min(cpu) * 1e6, min(wall) * 1e6


def measure(driver: BackendDriver, name: str, shape: tuple[int, ...]) -> dict[str, float]:
    """A batch through the backend's hook, and the bare callable with the same rows."""
    rows = [np.random.default_rng(0).random((1, *shape[1:]), np.float32) for _ in range(shape[0])]
    requests = []
    for row in rows:
        request = InferRequest(name, {"x": Tensor.from_numpy("x", row)})
        request.batch_size = 1
        requests.append(request)
    batch = np.concatenate(rows)
    count = 2000 if shape[0] == 1 else 4
    with driver.load(name) as model:
        state = model.instances[0].state
        (bare,) = state._graph._callables.values()

        def both() -> tuple[tuple[float, float], tuple[float, float]]:
            state.execute(requests)
            return times_of(lambda: state.execute(requests), count), times_of(lambda: bare(batch), count)

        hook, alone = model._threads[0].submit(both).result()
    return {
        "hook_us": round(hook[0], 1),
        "bare_us": round(alone[0], 1),
        "share": round(alone[0] / hook[0], 3),
        "hook_wall_us": round(hook[1], 1),
        "bare_wall_us": round(alone[1], 1),
    }


def memory_of_loads(driver: BackendDriver, name: str, count: int) -> list[float]:
    """MiB of the process, five times while a model is loaded and unloaded `count` times."""
    marks = []
    for index in range(count):
        with driver.load(name):
            pass
        if index % max(1, count // 5) == max(1, count // 5) - 1:
            gc.collect()
            marks.append(round(psutil.Process().memory_info().rss / 2**20, 1))
    return marks


def main() -> None:
    """Measure all models and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        driver = BackendDriver("tensorflow", Path(folder))
        calls = {name: measure(driver, name, shape) for name, shape in SHAPES.items()}
        loads = memory_of_loads(driver, "dense", options.loads) if options.loads else []
    result = {"machine": machine_facts(), "tensorflow": tf.__version__, "calls": calls, "loads_mib": loads}
    print(json.dumps(result, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
