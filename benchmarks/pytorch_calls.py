"""What the backend for PyTorch costs a call: by kind of model, beside the bare call of the same model.

A tiny dense network shows the overhead of one call, a convolutional one what is left of its speed in full
batches. Both
run on the instance's thread with one thread of PyTorch; times are CPU times of that thread, the smallest of
many rounds.
With `--loads` each model is loaded and unloaded so often, and the memory of the process is told five times.
Needs
`torch`:

    python benchmarks/pytorch_calls.py --loads 250 --output benchmarks/results/pytorch_calls.json
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
from machine_facts import machine_facts
from torch.export import Dim
from tritonpy.plugin import InferRequest, Tensor
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver

ROUNDS = 10
SOURCE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))

    def forward(self, x):
        return self.layers(x)
"""


def dense() -> torch.nn.Module:
    """A network that takes microseconds."""
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()


def convolutional() -> torch.nn.Module:
    """A network that takes a millisecond for each row."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10),
    ).eval()  # fmt: skip


def scripted(module: torch.nn.Module) -> dict[str, bytes | str]:
    """Its TorchScript file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(module), buffer)
    return {"model.pt": buffer.getvalue()}


def exported(module: torch.nn.Module, sample: torch.Tensor) -> dict[str, bytes | str]:
    """Its exported program."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, (sample,), dynamic_shapes=({0: Dim("batch")},)), buffer)
    return {"model.pt2": buffer.getvalue()}


def write_models(repository: ModelRepository) -> dict[str, tuple[int, ...]]:
    """Write all models; returns the shape of a batch for each."""
    shapes = {"dense": (1, 16), "conv": (16, 3, 64, 64)}
    files = {}
    for name, module in (("dense", dense()), ("conv", convolutional())):
        files[f"{name}_script"] = scripted(module)
        files[f"{name}_export"] = exported(module, torch.zeros(2, *shapes[name][1:]))
    files["dense_source"] = {"model.py": SOURCE}
    for name, content in files.items():
        kind = name.partition("_")[0]
        dims = list(shapes[kind][1:])
        config = {
            "backend": "pytorch",
            "max_batch_size": 32,
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": dims}],
            "output": [
                {"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [8 if kind == "dense" else 10]}
            ],
            "parameters": {"INTRA_OP_THREAD_COUNT": {"string_value": "1"}},
        }
        if "model.py" in content:
            config["runtime"] = "model.py"
        repository.model(name, config, content)
    return {name: shapes[name.partition("_")[0]] for name in files}


def seconds_of(call: Callable[[], object], count: int) -> float:
    """CPU time of one call, the smallest of the rounds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(count):
            call()
        times.append((time.thread_time() - begin) / count)
    return min(times)


def measure(driver: BackendDriver, name: str, shape: tuple[int, ...]) -> dict[str, float]:
    """Microseconds of a batch through the backend's hook, and of the bare call with the same rows."""
    rows = [np.random.default_rng(0).random((1, *shape[1:]), np.float32) for _ in range(shape[0])]
    requests = []
    for row in rows:
        request = InferRequest(name, {"x": Tensor.from_numpy("x", row)})
        request.batch_size = 1
        requests.append(request)
    batch = torch.from_numpy(np.concatenate(rows))
    count = 2000 if shape[0] == 1 else 4
    with driver.load(name) as model:
        state = model.instances[0].state

        def both() -> tuple[float, float]:
            state.execute(requests)
            return (
                seconds_of(lambda: state.execute(requests), count),
                seconds_of(lambda: state._call(batch), count),
            )

        hook, bare = model._threads[0].submit(both).result()
    return {"hook_us": round(hook * 1e6, 1), "bare_us": round(bare * 1e6, 1), "share": round(bare / hook, 3)}


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
        shapes = write_models(ModelRepository(folder))
        driver = BackendDriver("pytorch", Path(folder))
        calls = {name: measure(driver, name, shape) for name, shape in shapes.items()}
        loads = {
            name: memory_of_loads(driver, name, options.loads)
            for name in ("dense_script", "dense_export", "dense_source")
            if options.loads
        }
    result = {"machine": machine_facts(), "torch": torch.__version__, "calls": calls, "loads_mib": loads}
    print(json.dumps(result, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
