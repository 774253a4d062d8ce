"""A server whose models have faulty strategies, one beside them that has none, and what it costs."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess, until

from .agent_places import children

WELL = "well"

_WINDOW_S = 0.25
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def configuration(strategy: str = "", **more: Any) -> dict[str, Any]:
    """Of a model that repeats what comes, and waits a moment for company."""
    parameters = {"TRITON_BATCH_STRATEGY_PATH": strategy} if strategy else {}
    return {
        "backend": "identity",
        "max_batch_size": 16,
        "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1], "allow_ragged_batch": True}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
        "dynamic_batching": {"max_queue_delay_microseconds": 20_000},
        "parameters": {
            name: {"string_value": value} for name, value in (parameters | more.pop("parameters", {})).items()
        },
        **more,
    }


@dataclass(frozen=True)
class Answer:
    """What a client gets.

    Attributes:
        status: of HTTP.
        error: the text; "" for none.
    """

    status: int
    error: str


class FaultServer:
    """`corectl serve` on a repository in which models come and go.

    Attributes:
        models: the repository.
        process: the server.
        pool: threads for what goes on beside a test.
    """

    def __init__(self, root: Path, *flags: str) -> None:
        self.models = ModelRepository(root)
        self.models.model(WELL, configuration(dynamic_batching={}))
        self._server = ServerProcess(
            f"--model-repository={root}", "--model-control-mode=explicit", f"--load-model={WELL}", *flags
        )
        self.process = self._server.process
        self.pool = ThreadPoolExecutor(16)

    def close(self) -> None:
        """End it, and see that it ends well."""
        self.pool.shutdown()
        try:
            assert self._server.stop() == 0, self.log
        finally:
            self._server.close()

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._server.log

    def add(self, name: str, strategy: str = "", **more: Any) -> Path:
        """Put a model into the repository; returns its directory."""
        self.models.model(name, configuration(strategy, **more))
        return self.models.path / name

    def load(self, name: str, parameters: Mapping[str, Any] | None = None) -> Answer:
        """Ask for a load."""
        return self._ask(f"/v2/repository/models/{name}/load", {"parameters": parameters or {}})

    def unload(self, name: str) -> Answer:
        """Ask for an unload."""
        return self._ask(f"/v2/repository/models/{name}/unload", {})

    def infer(self, name: str, id: str = "", columns: int = 4, **parameters: str) -> Answer:
        """One inference, with 4 bytes for each column; its answer is compared with what was sent."""
        data = list(range(columns))
        tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1, columns], "data": data}
        body = {"id": id, "inputs": [tensor], "parameters": parameters}
        status, document = self._call(f"/v2/models/{name}/infer", body)
        if status == 200:
            assert document["outputs"][0]["data"] == data
        return Answer(status, document.get("error", ""))

    def begin(self, name: str, id: str = "", columns: int = 4) -> Future[Answer]:
        """An inference that goes on beside the test."""
        return self.pool.submit(self.infer, name, id, columns)

    def infer_all(self, name: str, *requests: tuple[str, int]) -> list[Answer]:
        """Requests at the same time, with their ids and columns."""
        return [future.result() for future in [self.begin(name, *request) for request in requests]]

    def batches(self, name: str) -> dict[int, int]:
        """How many batches of each size were executed."""
        _, document = self._call(f"/v2/models/{name}/stats", None)
        stats = document["model_stats"][0]["batch_stats"]
        return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats}

    def state(self, name: str) -> str:
        """What the index says of a model."""
        _, document = self._call("/v2/repository/index", {})
        return next(entry.get("state", "") for entry in document if entry["name"] == name)

    def metric(self, line: str) -> str:
        """The value behind the beginning of a line of the metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.metrics_port, timeout=DEADLINE_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return next((found.split()[-1] for found in text.splitlines() if found.startswith(line)), "")

    def waiting(self, name: str) -> int:
        """How many requests of a model are in its queue."""
        return int(self.metric(f'nv_inference_pending_request_count{{model="{name}"') or 0)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        until(condition, lambda: self.log)

    def assert_well(self) -> None:
        """The model without a strategy answers."""
        assert self.infer(WELL) == Answer(200, "")

    def assert_idle(self) -> None:
        """Nothing spins, here or in its children: there comes a while in which they use far less than it."""

        def is_idle() -> bool:
            before = self._cpu_s()
            time.sleep(_WINDOW_S)
            return self._cpu_s() - before < _WINDOW_S / 2

        self.until(is_idle)

    def children(self) -> list[int]:
        """The processes it has started."""
        return children(self.process.pid)

    def _cpu_s(self) -> float:
        used_s = 0.0
        for pid in [self.process.pid, *self.children()]:
            with suppress(FileNotFoundError, ProcessLookupError):  # one of the children has ended
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                used_s += (int(fields[11]) + int(fields[12])) * _TICK_S
        return used_s

    def _ask(self, path: str, body: Mapping[str, Any]) -> Answer:
        status, document = self._call(path, body)
        return Answer(status, document.get("error", ""))

    def _call(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._server.ports["HTTPService"], timeout=DEADLINE_S
        )
        try:
            method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
            connection.request(method, path, content)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "{}")
        finally:
            connection.close()


@contextmanager
def serving(root: Path, *flags: str) -> Iterator[FaultServer]:
    """A server for a while; all its children end with it."""
    server = FaultServer(root, *flags)
    try:
        yield server
    finally:
        server.close()
