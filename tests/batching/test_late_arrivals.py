"""Who arrives while a batch waits for an instance joins it, on our server and on a real one.

The real server closes a batch when its delay is over, though no instance is free, and merges it later with
others that wait. Ours keeps requests in the queue until an instance is idle: there is nothing to merge.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import OURS_AND_REAL

DELAY_S = 0.05
LATE_S = {"ours": 0.1, "real": 0.75}  # the real batcher looks up from its sleep every half second

# Writes down the numbers of each batch; one with number 0 is executed until the test makes a file.
MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        numbers = [int(tensor.item()) for tensor in tensors]
        with open(os.path.join(self.folder, "journal"), "a") as journal:
            journal.write(json.dumps(numbers) + os.linesep)
        while 0 in numbers and not os.path.exists(os.path.join(self.folder, "gate")):
            time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor)]) for tensor in tensors]
"""


@pytest.mark.parametrize("server", OURS_AND_REAL)
def test_batches_whose_delay_is_over_before_an_instance_is_free_are_one(
    server: str, tmp_path: Path, serve: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    config = {
        "backend": "python",
        "max_batch_size": 8,
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {"folder": {"string_value": str(tmp_path)}},
        "dynamic_batching": {"max_queue_delay_microseconds": int(DELAY_S * 1e6)},
    }
    models = ModelRepository(tmp_path / "models")
    models.python("m", MODEL, config)
    if server == "ours":
        ours = serve(models.path)
        port, metrics = ours.http_port, ours.metrics_port
    else:
        ports = request.getfixturevalue("real_triton")(models.path)
        port, metrics = ports["http"], ports["metrics"]
    threads: list[threading.Thread] = []

    def ask(number: int) -> None:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [number]}

        def infer() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
            connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}))
            connection.getresponse().read()
            connection.close()

        threads.append(threading.Thread(target=infer))
        threads[-1].start()

    def batches() -> list[list[int]]:
        journal = tmp_path / "journal"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    def pending() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=DEADLINE_S) as page:
            found = re.search(r'pending_request_count{model="m",.*} (\d+)', page.read().decode())
        return int(found[1]) if found else 0

    ask(0)
    until(lambda: batches() == [[0]])
    for pair in ((1, 2), (3, 4)):
        for number in pair:
            ask(number)
        until(lambda last=pair[1]: pending() == last)  # type: ignore[misc]
        time.sleep(DELAY_S + LATE_S[server])  # their delay is over, and no instance is free
    (tmp_path / "gate").touch()
    for thread in threads:
        thread.join(DEADLINE_S)

    assert [sorted(batch) for batch in batches()] == [[0], [1, 2, 3, 4]]
