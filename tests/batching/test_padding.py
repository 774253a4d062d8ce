"""Models that execute certain batch sizes only, behind the strategy `pad`: on threads and in workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient import http as httpclient
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..on_loop import on_loop
from .strategies import batch_sizes

# Doubles numbers and turns strings around, in batches of 4 and 8 rows and in no others.
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        numbers = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        texts = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy() for request in requests]
        together = np.concatenate(numbers)
        if len(together) not in (4, 8):
            raise pb_utils.TritonModelException(f"this engine has no batch of {len(together)}")
        ends = np.cumsum([len(each) for each in numbers])[:-1]
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor("Y", doubled),
                pb_utils.Tensor("BACK", np.array([[row[0][::-1]] for row in text], object)),
            ])
            for doubled, text in zip(np.split(together * 2, ends), texts)
        ]
"""
CONFIG: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 8,
    "input": [
        {"name": "X", "data_type": "TYPE_INT32", "dims": [2]},
        {"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]},
    ],
    "output": [
        {"name": "Y", "data_type": "TYPE_INT32", "dims": [2]},
        {"name": "BACK", "data_type": "TYPE_STRING", "dims": [1]},
    ],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100_000},
}


def ask(port: int, first: int, rows: int) -> None:
    """Send rows, and look at what comes back."""
    numbers = np.arange(first, first + 2 * rows, dtype=np.int32).reshape(rows, 2)
    texts = np.array([[f"{first}-{row}".encode()] for row in range(rows)], object)
    inputs = [
        httpclient.InferInput("X", [rows, 2], "INT32"),
        httpclient.InferInput("TEXT", [rows, 1], "BYTES"),
    ]
    inputs[0].set_data_from_numpy(numbers)
    inputs[1].set_data_from_numpy(texts)
    with httpclient.InferenceServerClient(f"127.0.0.1:{port}") as client:
        result = client.infer("engine", inputs)
    assert result.as_numpy("Y").tolist() == (numbers * 2).tolist()
    assert result.as_numpy("BACK").tolist() == [[text[::-1]] for (text,) in texts.tolist()]


def served(serve: Callable[..., Server], path: Path, isolation: str) -> Server:
    parameters = {"TRITON_BATCH_STRATEGY_PATH": "pad", "TRITONPY_ISOLATION": isolation}
    values = {key: {"string_value": value} for key, value in parameters.items()}
    models = ModelRepository(path)
    models.python("engine", MODEL, CONFIG | {"parameters": values})
    return serve(models.path)


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_requests_of_any_size_are_answered_by_an_engine_of_few_sizes(
    serve: Callable[..., Server], tmp_path: Path, isolation: str
) -> None:
    server = served(serve, tmp_path, isolation)

    for rows in (1, 3, 4, 5, 8):
        ask(server.http_port, 100 * rows, rows)

    assert batch_sizes(server, "engine") == {4: 3, 8: 2}
    stats = server.runtime.registry.find("engine").stats
    assert (stats.inference_count, stats.success_count, stats.fail_count) == (21, 5, 0)
    assert stats.pending_count == 0


def test_requests_of_many_clients_get_their_own_rows_back(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = served(serve, tmp_path, "process")
    failures: list[BaseException] = []

    def client(number: int) -> None:
        try:
            for step in range(5):
                ask(server.http_port, 1000 * number + 10 * step, 1 + (number + step) % 3)
        except BaseException as error:
            failures.append(error)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()

    assert failures == []
    assert set(batch_sizes(server, "engine")) <= {4, 8}
    stats = server.runtime.registry.find("engine").stats
    assert on_loop(server, lambda: stats.inference_count) == 60
