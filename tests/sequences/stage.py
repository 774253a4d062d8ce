"""Models that write down what they see of sequences, and a client that asks in a known order."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..counting import comes_to

ANSWER_S = 60
"""Requests are held while a test sends others, one after the other."""
GATE = -7
"""A value that keeps the model busy until the test lets it go on."""

# Adds up what each sequence sends, and writes down each batch: instance, and for each request its value and
# what else it brings. What a null request has for a value nobody knows.
MODEL = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        self.instance = args["model_instance_name"]
        self.sums = {}
        self.tell("pid", str(os.getpid()))

    def tell(self, what, text):
        with open(os.path.join(self.folder, f"{self.instance}.{what}"), "w") as file:
            file.write(text)

    def finalize(self):
        self.tell("end", "")

    def execute(self, requests):
        batch = [self.seen(request) for request in requests]
        with open(os.path.join(self.folder, "journal"), "a") as journal:
            journal.write(json.dumps([self.instance, batch]) + "\\n")
        while any(row["X"] == -7 for row in batch) and not os.path.exists(os.path.join(self.folder, "gate")):
            time.sleep(0.001)
        return [self.answer(request, row) for request, row in zip(requests, batch)]

    def seen(self, request):
        row = {"id": request.correlation_id(), "flags": request.flags()}
        for tensor in request.inputs():
            value = tensor.as_numpy().ravel()[0]
            row[tensor.name()] = value.decode() if isinstance(value, bytes) else value.item()
        if row.get("READY") in (0, False):
            return {"X": None}
        return row

    def answer(self, request, row):
        value = 0
        if row["X"] is not None:
            before = 0 if row["flags"] & 1 else self.sums[row["id"]]
            value = self.sums[row["id"]] = before + row["X"]
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([[value]], np.int32))])
"""


# Executes a request as many times as its value says, the last digit of it if it is negative, and answers how
# often that was.
STEPS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class Steps:
    def answer(self, request, row):
        if row["X"] is None:
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([[0]], np.int32))])
        step = self.sums[row["id"]] = 1 if row["flags"] & 1 else self.sums[row["id"]] + 1
        if step < abs(row["X"]) % 10:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([[step]], np.int32))])
"""
ITERATIVE = (
    STEPS
    + MODEL.replace("class TritonPythonModel:", "class Sums:")
    + """
class TritonPythonModel(Steps, Sums):
    pass
"""
)


def control(name: str, kind: str, **values: Any) -> dict[str, Any]:
    """One entry of `control_input`."""
    return {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", **values}]}


READY = control("READY", "READY", int32_false_true=[0, 1])
CONTROLS = [
    control("START", "START", int32_false_true=[0, 1]),
    control("END", "END", fp32_false_true=[0.0, 1.0]),
    control("READY", "READY", bool_false_true=[False, True]),
    control("CORRID", "CORRID", data_type="TYPE_UINT64"),
]


def config(folder: Path, *, max_batch_size: int = 4, instances: int = 1, **batching: Any) -> dict[str, Any]:
    """Of a model on CPU whose sequences may be idle for long, if nothing else is said."""
    return {
        "backend": "python",
        "max_batch_size": max_batch_size,
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": instances}],
        "parameters": {"folder": {"string_value": str(folder)}},
        "sequence_batching": {
            "max_sequence_idle_microseconds": 30_000_000,
            "control_input": CONTROLS,
            **batching,
        },
    }


def add(models: ModelRepository, root: Path, name: str, source: str = MODEL, **settings: Any) -> None:
    """Add a model, and the folder it writes into."""
    (root / name).mkdir()
    models.python(name, source, config(root / name, **settings))


class Model:
    """One model of a server, as the test talks to it.

    Args:
        name: of the model.
        ports: of the server: HTTP and metrics.
        folder: where the model writes.
        pool: where requests wait for their answers.

    Attributes:
        input_name: of its only input.
    """

    def __init__(self, name: str, ports: tuple[int, int], folder: Path, pool: ThreadPoolExecutor) -> None:
        self.name = name
        self.input_name = "X"
        self._http, self._metrics = ports
        self._folder = folder
        self._pool = pool

    def ask(
        self,
        value: int | list[int],
        sequence: int | str | None = None,
        *,
        start: bool = False,
        end: bool = False,
        inputs: tuple[dict[str, Any], ...] = (),
        shape: list[int] | None = None,
        **parameters: Any,
    ) -> Any:
        """Send a request: the sum, or status and text of the error."""
        if sequence is not None:
            parameters["sequence_id"] = sequence
        parameters |= {"sequence_start": True} if start else {}
        parameters |= {"sequence_end": True} if end else {}
        values = value if isinstance(value, list) else [value]
        shape = shape or [1, len(values)]
        tensor = {"name": self.input_name, "datatype": "INT32", "shape": shape, "data": values}
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=ANSWER_S)
        try:
            body = json.dumps({"inputs": [tensor, *inputs], "parameters": parameters})
            connection.request("POST", f"/v2/models/{self.name}/infer", body)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            return answer.status, document["error"]
        return document["outputs"][0]["data"][0]

    def block(self, sequence: int, **options: Any) -> Future[Any]:
        """Send a request that is executed until `release`, and return when it is."""
        count = len(self.batches)
        answer = self._pool.submit(self.ask, GATE, sequence, **options)
        until(lambda: len(self.batches) > count)
        return answer

    def send(self, value: int | list[int], sequence: int | str, **options: Any) -> Future[Any]:
        """Send a request and return at once."""
        return self._pool.submit(self.ask, value, sequence, **options)

    def queue(self, value: int | list[int], sequence: int | str, **options: Any) -> Future[Any]:
        """Send a request and return when it waits at the server."""
        waiting = self.pending
        answer = self.send(value, sequence, **options)
        until(lambda: self.pending == waiting + 1)
        return answer

    def ask_alone(self) -> float:
        """Ask in one sequence; how long the answer took, in seconds."""
        begin = time.monotonic()
        self.ask(1, 1, start=True)
        return time.monotonic() - begin

    def ask_together(self) -> None:
        """Ask in one sequence, then in another one as well."""
        first = self.queue(2, 1, start=True)
        self.ask(10, 2, start=True)
        first.result()

    def release(self) -> None:
        """Let the model go on."""
        (self._folder / "gate").touch()

    def kill(self, instance: str) -> None:
        """Kill the worker of an instance."""
        os.kill(int((self._folder / f"{instance}.pid").read_text()), signal.SIGKILL)

    def has_ended(self, instance: str) -> bool:
        """Whether an instance has been finalized."""
        return (self._folder / f"{instance}.end").exists()

    @property
    def rows(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """All batches: instance, and what each request brought."""
        journal = self._folder / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    @property
    def batches(self) -> list[list[int | None]]:
        """All batches: the value of each request, None for a null request."""
        return [[row["X"] for row in batch] for _, batch in self.rows]

    @property
    def pending(self) -> int:
        """How many requests wait."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        found = re.search(rf'nv_inference_pending_request_count{{model="{self.name}",.*}} (\d+)', text)
        return int(found[1]) if found else 0

    def failed(self, **wanted: int) -> bool:
        """Whether it comes to so many failed requests for these reasons, and no others."""
        found = comes_to(self._failures, wanted)
        assert found == wanted
        return True

    def _failures(self) -> dict[str, int]:
        """Failed requests by reason, without those that there are none of."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        pattern = rf'nv_inference_request_failure{{model="{self.name}",reason="(\w+)",.*}} (\d+)'
        return {reason: int(count) for reason, count in re.findall(pattern, text) if int(count)}

    def counted(self, **wanted: Any) -> bool:
        """Whether the statistics come to these numbers.

        They are requests (`success`, `fail`, `queue`), rows (`inferences`), `executions`, and executions by
        batch size (`batches`).
        """

        def counts() -> dict[str, Any]:
            found = self._counts()
            return {name: found[name] for name in wanted}

        found = comes_to(counts, wanted)
        assert found == wanted  # here, so that a failure shows both
        return True

    def _counts(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._http}/v2/models/{self.name}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            stats = json.load(answer)["model_stats"][0]
        phases = stats["inference_stats"]
        return {
            "success": phases["success"]["count"],
            "fail": phases["fail"]["count"],
            "queue": phases["queue"]["count"],
            "inferences": stats["inference_count"],
            "executions": stats["execution_count"],
            "batches": {row["batch_size"]: row["compute_infer"]["count"] for row in stats["batch_stats"]},
        }
