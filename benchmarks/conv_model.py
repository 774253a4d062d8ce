"""The case "a model that computes": ours end to end against ONNX Runtime in a bare loop on the same batches.

Our server counts how many batches of each size it executed. The bare loop times those sizes in the same round
and works out what rate the framework alone would reach on them; the ratio is what serving costs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime
from bench_servers import NotStarted, RunningServer, start
from load_generator import Load, LoadFailed, measure

IMAGE_SHAPE = (3, 64, 64)
MAX_BATCH_SIZE = 4
MIN_WINDOW_MS = 500  # a batch takes tens of milliseconds; shorter windows would count too few of them
LOADS = {
    # Three batches' worth of single requests: while one batch runs, the next is waiting in full.
    "single images, batched by the server": {"concurrency": 3 * MAX_BATCH_SIZE, "batch_size": 1},
    "full batches sent by the client": {"concurrency": 3, "batch_size": MAX_BATCH_SIZE},
}
CONFIG = f"""\
name: "conv"
backend: "onnxruntime"
max_batch_size: {MAX_BATCH_SIZE}
dynamic_batching {{ }}
input [ {{ name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] }} ]
output [ {{ name: "SCORES" data_type: TYPE_FP32 dims: [ 10 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def measure_conv_model(template: str, scratch: Path, window_ms: int, rounds: int) -> dict[str, object]:
    """Serve the generated network with our server and return its rates beside those of the bare loop.

    The answer holds `not_measured` and a reason where our server cannot serve it.
    """
    repository = scratch / "conv-repository"
    model_path = repository / "conv" / "1" / "model.onnx"
    generator = Path(__file__).with_name("make_conv_model.py")
    subprocess.run([sys.executable, str(generator), str(model_path)], check=True)
    (repository / "conv" / "config.pbtxt").write_text(CONFIG)
    try:
        server = start("ours", template, repository, scratch / "conv-ours.log")
    except NotStarted as error:
        return {"not_measured": str(error)}
    window_ms = max(window_ms, MIN_WINDOW_MS)
    try:
        return {title: _measure_load(server, model_path, title, window_ms, rounds) for title in LOADS}
    except (OSError, KeyError, LoadFailed) as error:
        return {"not_measured": f"{type(error).__name__}: {error}"}
    finally:
        server.stop()


def _measure_load(
    server: RunningServer, model_path: Path, title: str, window_ms: int, rounds: int
) -> dict[str, object]:
    """Measure one kind of load, alternating with the bare loop."""
    shape = ",".join(str(dimension) for dimension in IMAGE_SHAPE)
    byte_size = 4 * int(np.prod(IMAGE_SHAPE)) * LOADS[title]["batch_size"]
    load = Load("conv", "http", input_name="IMAGE", shape=shape, byte_size=byte_size, **LOADS[title])
    loop = BareLoop(model_path)
    results = []
    for _ in range(rounds):
        before = _executed_batches(server)
        served = measure(server, load, window_ms)
        executed = {
            size: count - before.get(size, 0)
            for size, count in _executed_batches(server).items()
            if count > before.get(size, 0)
        }
        bare_infer_per_s, batch_ms = loop.rate(executed, seconds=window_ms / 1000)
        results.append(
            {
                "served": asdict(served),
                "batches": executed,
                "bare_infer_per_s": round(bare_infer_per_s, 2),
                "bare_batch_ms": batch_ms,
                "ratio": round(served.infer_per_s / bare_infer_per_s, 4),
            }
        )
    ratio = statistics.median(float(str(result["ratio"])) for result in results)
    return {"ratio": ratio, "rounds": results}


class BareLoop:
    """ONNX Runtime with the same thread setting as the served model, and nothing around it."""

    def __init__(self, model_path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(model_path), options, providers=["CPUExecutionProvider"]
        )
        self._random = np.random.default_rng(seed=2)

    def rate(self, batches: dict[int, int], seconds: float) -> tuple[float, dict[int, float]]:
        """Return images per second over these batches, and the milliseconds of a batch of each size.

        Args:
            batches: how many batches of each size there were.
            seconds: for how long to run, split between the sizes by how much of the work they are.
        """
        work = sum(size * count for size, count in batches.items())
        batch_s = {
            size: self._time_batch(size, seconds * size * count / work) for size, count in batches.items()
        }
        total_s = sum(batch_s[size] * count for size, count in batches.items())
        return work / total_s, {size: round(1000 * duration, 3) for size, duration in batch_s.items()}

    def _time_batch(self, size: int, seconds: float) -> float:
        """Return the mean seconds of one batch, over at least three of them."""
        images = self._random.random((size, *IMAGE_SHAPE), dtype=np.float32)
        self._session.run(None, {"IMAGE": images})
        started, count = time.perf_counter(), 0
        while count < 3 or time.perf_counter() - started < seconds:
            self._session.run(None, {"IMAGE": images})
            count += 1
        return (time.perf_counter() - started) / count


def _executed_batches(server: RunningServer) -> dict[int, int]:
    """Return how many batches of each size the server says it has executed."""
    stats = server.ask("/v2/models/conv/stats")["model_stats"][0]["batch_stats"]
    return {int(entry["batch_size"]): int(entry["compute_infer"]["count"]) for entry in stats}
