"""Models whose instances are kept busy until a test has put in order what waits for them; both servers."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import serving

# Writes down the numbers of each batch; 0 is executed until the test makes a file.
MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        numbers = [int(tensor.as_numpy().reshape(-1)[0]) for tensor in tensors]
        with open(os.path.join(self.folder, "journal"), "a") as journal:
            journal.write(json.dumps(numbers) + "\\n")
        while 0 in numbers and not os.path.exists(os.path.join(self.folder, "gate")):
            time.sleep(0.001)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor.as_numpy())]) for tensor in tensors]
"""


class Asker:
    """Asks one model, whose instance is kept busy until `release`."""

    def __init__(
        self,
        name: str,
        ports: Mapping[str, int],
        folder: Path,
        pool: ThreadPoolExecutor,
        *,
        is_busy: bool,
        is_real: bool,
    ) -> None:
        self.name = name
        self.is_real = is_real
        self.ports = ports
        self._folder = folder
        self._pool = pool
        self._count = 0
        self._waiting = 0
        if is_busy:
            self.first = self.ask(waits=False)
            self.until(lambda: self.executed == [0])
        else:
            self._count = 1

    def enter(self) -> None:
        """A request that the test has sent itself is in the queue."""
        self._waiting += 1
        self.until(lambda: self.pending == self._waiting)

    def leave(self, *, waits: bool = True) -> None:
        """One has left the queue; without `waits` it will have when the next is executed."""
        self._waiting -= 1
        if waits:
            self.until(lambda: self.pending == self._waiting)

    def answer(self, parameters: Mapping[str, Any]) -> tuple[int, str]:
        """Status and error of one request over HTTP."""
        return self._infer(1, parameters)

    def ask(self, *, waits: bool = True, **parameters: int) -> Future[tuple[int, str]]:
        """Send a request and, unless it is refused or runs at once, return when it is in the queue."""
        answer = self._pool.submit(self._infer, self._count, parameters)
        self._count += 1
        if waits:
            self._waiting += 1
            self.until(lambda: self.pending == self._waiting)
        return answer

    def release(self) -> list[int]:
        """Let everything run; the numbers in the order in which they did, without the first."""
        self.open_gate()
        self.until(lambda: len(self.executed) == self._waiting + 1)
        return self.executed[1:]

    def open_gate(self) -> None:
        """Let go on what is executed."""
        (self._folder / "gate").touch()

    @property
    def executed(self) -> list[int]:
        return [number for batch in self.batches for number in batch]

    @property
    def batches(self) -> list[list[int]]:
        """What was executed together."""
        journal = self._folder / "journal"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    @property
    def pending(self) -> int:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=DEADLINE_S
        ) as page:
            text = page.read().decode()
        found = re.search(rf'nv_inference_pending_request_count{{model="{self.name}",.*}} (\d+)', text)
        return int(found[1]) if found else 0

    @property
    def failures(self) -> int:
        """How many the statistics count as failed."""
        url = f"http://127.0.0.1:{self.ports['http']}/v2/models/{self.name}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            stats = json.load(answer)["model_stats"][0]["inference_stats"]
        return int(stats["fail"]["count"])

    def _infer(self, number: int, parameters: Mapping[str, Any]) -> tuple[int, str]:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [number]}
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=DEADLINE_S)
        try:
            body = json.dumps({"inputs": [tensor], "parameters": parameters})
            connection.request("POST", f"/v2/models/{self.name}/infer", body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("error", "")
        finally:
            connection.close()

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, lambda: (self.name, self.executed, self.pending, self._waiting))


@contextmanager
def askers(
    request: pytest.FixtureRequest, root: Path, cases: Mapping[str, Mapping[str, Any]]
) -> Iterator[Callable[..., Asker]]:
    """Serve a model for each case; gives a function that makes an asker of one.

    Args:
        request: of the fixture, whose parameter is the kind of server.
        root: where models and what they note lie.
        cases: their configurations, beside what all have.
    """
    models = ModelRepository(root / "models")
    for name, config in cases.items():
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
                **config,
            },
        )
    with ExitStack() as stack:
        ports = stack.enter_context(serving(request.param, request, models.path))
        pool = stack.enter_context(ThreadPoolExecutor(16))
        try:
            yield lambda name, is_busy=True: Asker(
                name, ports, root / name, pool, is_busy=is_busy, is_real=request.param == "real"
            )
        finally:
            for name in cases:  # whoever still waits is answered
                (root / name / "gate").touch()
