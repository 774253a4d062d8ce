"""Priorities and limits of queues, on our server and on a real one: same order, refusals and counts."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

DEADLINE_S = 20

# Writes down the number of each request; the first one, 0, is executed until the test makes a file.
MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]

    def execute(self, requests):
        responses = []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "X")
            with open(os.path.join(self.folder, "journal"), "a") as journal:
                journal.write(f"{number.as_numpy().item()} ")
            while number.as_numpy().item() == 0 and not os.path.exists(os.path.join(self.folder, "gate")):
                time.sleep(0.001)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", number.as_numpy())]))
        return responses
"""

LEVELS = {"priority_levels": 3, "default_priority_level": 2}
CASES: dict[str, dict[str, Any]] = {
    "levels": LEVELS,
    "limits_by_level": LEVELS | {"priority_queue_policy": {"1": {"max_queue_size": 1}}},
    "limit": {"default_queue_policy": {"max_queue_size": 2}},
    "reject": {
        "default_queue_policy": {"default_timeout_microseconds": 60_000_000, "allow_timeout_override": True}
    },
    "fixed": {"default_queue_policy": {"default_timeout_microseconds": 60_000_000}},
    "delay": {
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": 60_000_000,
            "allow_timeout_override": True,
        }
    },
}


class Asker:
    """Asks one model, whose instance is kept busy until `release`."""

    def __init__(self, name: str, ports: tuple[int, int], folder: Path, pool: ThreadPoolExecutor) -> None:
        self._name = name
        self._http, self._metrics = ports
        self._folder = folder
        self._pool = pool
        self._count = 0
        self._waiting = 0
        self.ask(waits=False)
        self._until(lambda: self.executed == [0])

    def ask(self, *, waits: bool = True, **parameters: int) -> Future[tuple[int, str]]:
        """Send a request and, unless it is refused or runs at once, return when it is in the queue."""
        answer = self._pool.submit(self._infer, self._count, parameters)
        self._count += 1
        if waits:
            self._waiting += 1
            self._until(lambda: self.pending == self._waiting)
        return answer

    def gone(self, count: int = 1) -> None:
        """So many requests have left the queue."""
        self._waiting -= count
        self._until(lambda: self.pending == self._waiting)

    def release(self) -> list[int]:
        """Let everything run; the numbers in the order in which they did, without the first."""
        (self._folder / "gate").touch()
        self._until(lambda: len(self.executed) == self._waiting + 1)
        return self.executed[1:]

    @property
    def executed(self) -> list[int]:
        journal = self._folder / "journal"
        return [int(number) for number in journal.read_text().split()] if journal.exists() else []

    @property
    def pending(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        found = re.search(rf'nv_inference_pending_request_count{{model="{self._name}",.*}} (\d+)', text)
        return int(found[1]) if found else 0

    @property
    def failures(self) -> int:
        """How many the statistics count as failed."""
        url = f"http://127.0.0.1:{self._http}/v2/models/{self._name}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            stats = json.load(answer)["model_stats"][0]["inference_stats"]
        return int(stats["fail"]["count"])

    def _infer(self, number: int, parameters: dict[str, int]) -> tuple[int, str]:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [number]}
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=DEADLINE_S)
        try:
            body = json.dumps({"inputs": [tensor], "parameters": parameters})
            connection.request("POST", f"/v2/models/{self._name}/infer", body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("error", "")
        finally:
            connection.close()

    def _until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < until, (self._name, self.executed, self.pending, self._waiting)
            time.sleep(0.005)


@pytest.fixture(scope="module", params=["ours", pytest.param("real", marks=pytest.mark.parity)])
def asker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Asker]]:
    root = tmp_path_factory.mktemp(request.param)
    models = ModelRepository(root / "models")
    for name, batching in CASES.items():
        (root / name).mkdir()
        models.python(
            name,
            MODEL,
            {
                "backend": "python",
                "max_batch_size": 1,
                "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
                "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
                "instance_group": [{"kind": "KIND_CPU", "count": 1}],
                "parameters": {"folder": {"string_value": str(root / name)}},
                "dynamic_batching": batching,
            },
        )
    with ExitStack() as stack:
        if request.param == "ours":
            address = "127.0.0.1"
            options = ServerOptions(
                (str(models.path),),
                http_address=address,
                http_port=0,
                allow_grpc=False,
                metrics_address=address,
                metrics_port=0,
            )
            server = stack.enter_context(Server(options))
            ports = (server.http_port, server.metrics_port)
        else:
            real = request.getfixturevalue("real_triton")(models.path)
            ports = (real["http"], real["metrics"])
        pool = stack.enter_context(ThreadPoolExecutor(16))
        try:
            yield lambda name: Asker(name, ports, root / name, pool)
        finally:
            for name in CASES:  # whoever still waits is answered
                (root / name / "gate").touch()


def test_levels_run_in_order_and_a_wrong_one_counts_as_the_default(asker: Callable[[str], Asker]) -> None:
    model = asker("levels")
    for priority in (3, 3, 2, 0, 1, 0, 1, 99):
        model.ask(priority=priority)

    assert model.release() == [5, 7, 3, 4, 6, 8, 1, 2]


def test_a_full_queue_refuses_and_counts_no_failure(asker: Callable[[str], Asker]) -> None:
    model = asker("limit")
    model.ask()
    model.ask()

    status, error = model.ask(waits=False).result(DEADLINE_S)

    assert (status, error.removeprefix("[request id: <id_unknown>] ")) == (503, "Exceeds maximum queue size")
    assert model.release() == [1, 2]
    assert model.failures == 0


def test_a_full_level_leaves_the_others_open(asker: Callable[[str], Asker]) -> None:
    model = asker("limits_by_level")
    model.ask(priority=1)

    assert model.ask(waits=False, priority=1).result(DEADLINE_S)[0] == 503
    model.ask(priority=2)
    model.ask()

    assert model.release() == [1, 3, 4]


def test_a_request_that_waits_too_long_is_refused_though_the_instance_is_busy(
    asker: Callable[[str], Asker],
) -> None:
    model = asker("reject")
    model.ask()
    late = model.ask(timeout=200_000)

    status, error = late.result(DEADLINE_S)

    assert (status, error.removeprefix("[request id: <id_unknown>] ")) == (503, "Request timeout expired")
    model.gone()
    assert model.release() == [1]
    assert model.failures == 1


def test_a_timeout_of_a_request_counts_only_where_it_is_allowed(asker: Callable[[str], Asker]) -> None:
    model = asker("fixed")
    model.ask(timeout=1)
    model.ask(timeout=1)

    assert model.release() == [1, 2]
    assert model.failures == 0


def test_a_request_that_is_delayed_runs_after_those_in_time(asker: Callable[[str], Asker]) -> None:
    model = asker("delay")
    model.ask(timeout=1000)
    time.sleep(0.05)  # its time is up
    model.ask()
    model.ask()

    assert model.release() == [2, 3, 1]
    assert model.failures == 0
