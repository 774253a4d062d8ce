"""What batching is worth for one model: the same requests, served in five ways.

The model sleeps 5 ms for each execution and 0.25 ms for each row, as a device does that is not full. Sixteen
clients ask for one row each, over HTTP, one request after the other. Writes
`benchmarks/results/2026-11-22-batching-choices.json`; the figures stand in docs/how-to/batch-requests.md.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from machine_facts import machine_facts
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

RESULTS = Path(__file__).parent / "results" / "2026-11-22-batching-choices.json"
CLIENTS = 16
SECONDS = 3.0
ROUNDS = 5

MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.005 + 0.00025 * len(requests))
        tensors = [pb_utils.Tensor("Y", request.inputs()[0].as_numpy()) for request in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
"""
WAYS: dict[str, dict[str, Any]] = {
    "default scheduler": {},
    "default scheduler, 2 instances": {"instance_group": [{"kind": "KIND_CPU", "count": 2}]},
    "dynamic_batching {}": {"dynamic_batching": {}},
    "dynamic batching, 2 ms delay": {"dynamic_batching": {"max_queue_delay_microseconds": 2000}},
    "dynamic batching, preferred size 8": {"dynamic_batching": {"preferred_batch_size": [8]}},
}
BODY = json.dumps({"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})


def ask(port: int, model: str, until: float, latencies: list[float]) -> None:
    """One client."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.monotonic()
        connection.request("POST", f"/v2/models/{model}/infer", BODY)
        connection.getresponse().read()
        latencies.append(time.monotonic() - began)
    connection.close()


def counts(port: int, model: str) -> tuple[int, int]:
    """Inferences and executions so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{model}/stats") as answer:
        stats = json.load(answer)["model_stats"][0]
    return stats["inference_count"], stats["execution_count"]


def measure(port: int, model: str) -> dict[str, float]:
    """One window."""
    before = counts(port, model)
    latencies: list[float] = []
    until = time.monotonic() + SECONDS
    clients = [threading.Thread(target=ask, args=(port, model, until, latencies)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    inferences, executions = (now - was for now, was in zip(counts(port, model), before, strict=True))
    return {
        "requests_per_s": len(latencies) / SECONDS,
        "median_ms": statistics.median(latencies) * 1000,
        "p99_ms": statistics.quantiles(latencies, n=100)[98] * 1000,
        "rows_per_batch": inferences / executions,
    }


def main() -> None:
    """Measure all ways in turn, several times."""
    with tempfile.TemporaryDirectory() as folder:
        models = ModelRepository(folder)
        for number, config in enumerate(WAYS.values()):
            tensor = {"data_type": "TYPE_FP32", "dims": [4]}
            models.python(
                f"way{number}",
                MODEL,
                {
                    "backend": "python",
                    "max_batch_size": 16,
                    "input": [{"name": "X", **tensor}],
                    "output": [{"name": "Y", **tensor}],
                    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
                    **config,
                },
            )
        options = ServerOptions(
            (folder,), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
        )
        with Server(options) as server:
            windows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            for _ in range(ROUNDS):
                for number, way in enumerate(WAYS):
                    windows[way].append(measure(server.http_port, f"way{number}"))
    medians = {
        way: {key: round(statistics.median(window[key] for window in taken), 1) for key in taken[0]}
        for way, taken in windows.items()
    }
    RESULTS.write_text(
        json.dumps({"machine": machine_facts(), "clients": CLIENTS, "ways": medians}, indent=2) + "\n"
    )
    for way, figures in medians.items():
        print(f"{way:36}", figures)


if __name__ == "__main__":
    main()
