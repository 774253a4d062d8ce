"""`corectl explain` for models of every scheduler, with real requests behind the numbers."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from .conftest import ENSEMBLE, MODEL, TENSORS, Counted

SLOW = MODEL.replace("responses = []", "responses = []; import time; time.sleep(0.02)")
LONG = {"max_sequence_idle_microseconds": 50_000_000}  # none is idle for so long between two requests
SEQUENCES = {"sequence_batching": LONG}
OLDEST = {"sequence_batching": {**LONG, "oldest": {"max_candidate_sequences": 4}}}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"dynamic_batching": {}},
    "direct": SEQUENCES,
    "oldest": OLDEST,
}


@pytest.fixture
def server(serve: Callable[..., Server], tmp_path: Path) -> Server:
    models = ModelRepository(tmp_path)
    for name, config in CONFIGS.items():
        models.python(name, SLOW, {**TENSORS, **config})
    models.model("chain", ENSEMBLE)
    return serve(tmp_path)


def explain(server: Server, *arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("corectl")), "explain", *arguments]
    command += ["--url", f"127.0.0.1:{server.http_port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def step(server: Server, model: str, sequence: int, *, start: bool = False, end: bool = False) -> None:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    flags = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as connection:
        body = json.dumps({"inputs": [tensor], "parameters": flags})
        connection.request("POST", f"/v2/models/{model}/infer", body)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


def test_batches_of_many_clients_are_told_as_they_were(server: Server) -> None:
    counted = Counted(server.http_port, server.metrics_port)
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(counted.infer, "plain", 1) for _ in range(160)]
        assert {answer.result(30) for answer in answers} == {200}

    [told] = json.loads(explain(server, "plain", "--json"))

    assert sum(told["closed"].values()) == told["executions"]
    assert sum(int(size) * batch["count"] for size, batch in told["batch_sizes"].items()) == 160
    assert set(told["closed"]) <= {"full", "preferred", "queue empty"}
    assert told["requests"]["success"] == 160
    busy_s = sum(batch["ns"] for batch in told["batch_sizes"].values()) / 1e9
    assert told["executions"] * 0.02 <= busy_s <= told["seconds"]


def test_an_ensemble_points_at_its_step(server: Server) -> None:
    counted = Counted(server.http_port, server.metrics_port)
    assert counted.infer("chain", 1, 2) == 200

    text = explain(server, "chain")

    assert "Scheduler   ensemble of plain\n" in text
    assert "Instances   none of its own\n" in text
    assert "1 succeeded, 0 failed" in text
    assert "Ask for the steps: corectl explain plain." in text


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("direct", "sequences in slots of their own, 8 for each instance; idle ones end after 50000000 µs\n"),
        ("oldest", "sequences, the oldest first, 4 at once for each instance"),
    ],
)
def test_sequences_are_told_with_their_slots(server: Server, model: str, words: str) -> None:
    for sequence in (1, 2):
        step(server, model, sequence, start=True)
        step(server, model, sequence, end=True)

    text = explain(server, model)

    assert f"Scheduler   {words}" in text
    assert "4 succeeded, 0 failed" in text
    assert "Why batches left" in text
