"""Strategies that are Python files, models that have them, and who asks those."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import numpy as np
from tritonpy.server import Server

from ..on_loop import on_loop

HELD = """
from tritonpy.plugin import hookimpl

@hookimpl
def model_batcher_initialize(model):
    return None

@hookimpl
def model_batcher_finalize(batcher):
    pass

@hookimpl
def model_batch_initialize(batcher):
    return []

@hookimpl
def model_batch_finalize(batch):
    pass
"""


REFUSES_THREES = (
    HELD
    + """
@hookimpl
def model_batch_include_request(request, batch):
    if request.input("INPUT0").shape[1] == 3:
        raise ValueError("three is one too many")
    return True
"""
)


def identity(strategy: str = "", **parameters: str) -> dict[str, Any]:
    if strategy:
        parameters["TRITON_BATCH_STRATEGY_PATH"] = strategy
    return {
        "backend": "identity",
        "max_batch_size": 64,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "dynamic_batching": {"max_queue_delay_microseconds": 2_000_000},
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }


def infer(port: int, model: str, columns: int) -> tuple[int, dict[str, Any]]:
    data = np.arange(columns, dtype=np.float32).tolist()
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, columns], "data": data}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    if response.status == 200:
        assert document["outputs"][0]["data"] == data
    return response.status, document


def infer_in_order(server: Server, model: str, columns: list[int]) -> list[tuple[int, dict[str, Any]]]:
    """Send the requests so that they queue in this order, and wait for all of them."""
    answers: list[Any] = [None] * len(columns)
    loaded = server.runtime.registry.find(model)
    threads = []
    for index, count in enumerate(columns):

        def one(index: int = index, count: int = count) -> None:
            answers[index] = infer(server.http_port, model, count)

        thread = threading.Thread(target=one)
        thread.start()
        threads.append(thread)
        if index + 1 < len(columns):
            while loaded.stats.pending_count <= index:  # until it is queued
                thread.join(0.001)
    for thread in threads:
        thread.join()
    return answers


def batch_sizes(server: Server, model: str) -> dict[int, int]:
    stats = server.runtime.registry.find(model).stats
    return on_loop(server, lambda: {size: batch.count for size, batch in stats.batch_stats.items()})


def scrape(server: Server) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def load(server: Server, model: str, config: dict[str, Any]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    body = json.dumps({"parameters": {"config": json.dumps(config)}})
    connection.request("POST", f"/v2/repository/models/{model}/load", body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)["error"] if response.status != 200 else ""
