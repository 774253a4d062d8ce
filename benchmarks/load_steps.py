"""Count what one load request costs: calls of our functions, the files they stand in, switches of thread.

    python benchmarks/load_steps.py [--backend identity]

A model of six lines of configuration, in a directory, is loaded once to warm up, unloaded, and loaded again
while every call of a function below `tritonpy/` is counted, on all threads. The counts are the same anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import tritonpy
from tritonpy.options import ServerOptions
from tritonpy.runtime import ServerRuntime

CONFIG = """backend: "{backend}"
max_batch_size: 8
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{}}
"""
PACKAGE = f"{Path(tritonpy.__file__).parent}{os.sep}"


class CallCount:
    """Calls of the server's functions while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[int, str]] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            file = frame.f_code.co_filename.removeprefix(PACKAGE)
            self.calls.append((threading.get_ident(), file))

    def result(self) -> dict[str, Any]:
        pairs = list(zip(self.calls, self.calls[1:], strict=False))
        return {
            "calls": len(self.calls),
            "files": len({file for _, file in self.calls}),
            "changes_of_file": sum(before[1] != after[1] for before, after in pairs),
            "threads": len({thread for thread, _ in self.calls}),
            "thread_switches": sum(before[0] != after[0] for before, after in pairs),
            "calls_by_file": dict(Counter(file for _, file in self.calls).most_common()),
        }


async def count_load(root: str, backend: str) -> dict[str, Any]:
    """What a second load of a model costs."""
    model = Path(root) / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG.format(backend=backend))
    count = CallCount()
    threading.setprofile(count)
    sys.setprofile(count)
    runtime = ServerRuntime(
        ServerOptions((root,), model_control_mode="explicit", http_port=0, grpc_port=0, metrics_port=0)
    )
    try:
        await runtime.start()
        dataplane = runtime.dataplane
        await dataplane.load_model("m")
        await dataplane.unload_model("m")
        await asyncio.sleep(0.5)
        count.is_on = True
        began_ns = time.perf_counter_ns()
        await dataplane.load_model("m")
        took_ns = time.perf_counter_ns() - began_ns
        count.is_on = False
        return {**count.result(), "took_ms_counted": round(took_ns / 1e6, 2)}
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        await runtime.stop()


def main() -> None:
    """Print the counts as JSON."""
    parser = argparse.ArgumentParser(description="Count what one load request costs.")
    parser.add_argument("--backend", default="identity")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        print(json.dumps(asyncio.run(count_load(root, options.backend)), indent=1))


if __name__ == "__main__":
    main()
