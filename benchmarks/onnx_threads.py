"""Which thread settings an ONNX Runtime session should get by default, measured on this machine.

Two instances run the same model on two threads, as the server would, beside a thread that stands for the
event loop. Every setting runs in a process of its own; settings take turns, and the median over the rounds
counts. Needs `onnxruntime`, `onnx` and `numpy`:

    python benchmarks/onnx_threads.py --rounds 5 --output benchmarks/results/onnx_threads.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

# name: (intra-op threads, 0 = as many as cores; spinning; one session for both instances)
SETTINGS: dict[str, tuple[int, bool, bool]] = {
    "ort-defaults": (0, True, False),
    "cores-nospin": (0, False, False),
    "one-thread": (1, True, False),
    "one-nospin": (1, False, False),
    "one-nospin-shared": (1, False, True),
    "cores-nospin-shared": (0, False, True),
}
MODELS = ("conv", "mlp")
PHASE_S = 1.5
REQUESTS_PER_S = 20


def build_model(kind: str) -> bytes:
    """Return a serialized model: a few convolutions of some 5 ms a batch, or a tiny dense network."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def weight(name: str, *shape: int) -> str:
        weights.append(numpy_helper.from_array(rng.normal(0, 0.05, shape).astype("f4"), name))
        return name

    last = "X"
    if kind == "conv":
        shape = ["N", 3, 128, 128]
        for i, (cin, cout) in enumerate([(3, 32), (32, 32), (32, 64)]):
            w = weight(f"w{i}", cout, cin, 3, 3)
            nodes.append(
                helper.make_node("Conv", [last, w], [f"c{i}"], pads=[1, 1, 1, 1], strides=[1 + (i > 0)] * 2)
            )
            nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
            last = f"r{i}"
        nodes.append(helper.make_node("GlobalAveragePool", [last], ["Y"]))
        out = ["N", 64, 1, 1]
    else:
        shape = ["N", 256]
        for i in range(3):
            nodes.append(helper.make_node("MatMul", [last, weight(f"w{i}", 256, 256)], [f"m{i}"]))
            nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}" if i < 2 else "Y"]))
            last = f"r{i}"
        out = ["N", 256]
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, out)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Pinger(threading.Thread):
    """Stands for the event loop: wants to wake up every 2 ms and notes how late it is."""

    def __init__(self) -> None:
        super().__init__()
        self.late_us: list[float] = []
        self.running = True

    def run(self) -> None:
        while self.running:
            due = time.perf_counter() + 0.002
            time.sleep(0.002)
            self.late_us.append((time.perf_counter() - due) * 1e6)


def measure(setting: str, kind: str) -> dict[str, float]:
    """Run one setting with one model in this process."""
    import numpy as np
    import onnxruntime as ort

    sys.setswitchinterval(0.0005)  # as `corectl serve` does
    intra, spinning, shared = SETTINGS[setting]
    options = ort.SessionOptions()
    options.intra_op_num_threads = intra
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    model = build_model(kind)

    def make() -> ort.InferenceSession:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    first = make()
    sessions = [first, first if shared else make()]
    x = np.ones((4, 3, 128, 128) if kind == "conv" else (4, 256), "f4")
    for session in sessions:
        for _ in range(5):
            session.run(None, {"X": x})

    def loop(session: ort.InferenceSession, latencies: list[float], until: Callable[[], bool]) -> None:
        while not until():
            start = time.perf_counter()
            session.run(None, {"X": x})
            latencies.append(time.perf_counter() - start)

    result: dict[str, float] = {}

    # Two instances under load.
    pinger = Pinger()
    lists: list[list[float]] = [[], []]
    end = time.perf_counter() + PHASE_S
    before = cpu_s()
    threads = [
        threading.Thread(target=loop, args=(session, out, lambda: time.perf_counter() > end))
        for session, out in zip(sessions, lists, strict=True)
    ]
    for thread in [pinger, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    pinger.running = False
    pinger.join()
    count = len(lists[0]) + len(lists[1])
    result["batches_per_s"] = count / PHASE_S
    result["cpu_ms_per_batch"] = (cpu_s() - before) / count * 1e3
    result["loop_late_p99_us"] = statistics.quantiles(pinger.late_us, n=100)[98]

    # One client that waits for each answer.
    alone: list[float] = []
    end = time.perf_counter() + PHASE_S
    loop(first, alone, lambda: time.perf_counter() > end)
    result["alone_p50_ms"] = statistics.median(alone) * 1e3

    # A model that is asked now and then: what does the waiting in between cost?
    before = cpu_s()
    requests = int(PHASE_S * REQUESTS_PER_S)
    for i in range(requests):
        sessions[i % 2].run(None, {"X": x})
        time.sleep(1 / REQUESTS_PER_S)
    result["sparse_cpu_ms_per_batch"] = (cpu_s() - before) / requests * 1e3
    result["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def machine() -> dict[str, object]:
    import onnxruntime as ort

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "onnxruntime": ort.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("SETTING", "MODEL"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one)))
        return

    samples: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for kind in MODELS:
            for setting in SETTINGS:
                run = subprocess.run(
                    [sys.executable, __file__, "--one", setting, kind],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                samples.setdefault((kind, setting), []).append(json.loads(run.stdout))
    medians = {
        kind: {
            setting: {
                key: round(statistics.median(s[key] for s in samples[kind, setting]), 3)
                for key in samples[kind, setting][0]
            }
            for setting in SETTINGS
        }
        for kind in MODELS
    }
    for kind in MODELS:
        keys = list(medians[kind]["ort-defaults"])
        print(f"\n{kind:<22}" + "".join(f"{key:>26}" for key in keys))
        for setting in SETTINGS:
            print(f"{setting:<22}" + "".join(f"{medians[kind][setting][key]:>26.2f}" for key in keys))
    if args.output:
        document = {"machine": machine(), "rounds": args.rounds, "phase_s": PHASE_S, "medians": medians}
        args.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
