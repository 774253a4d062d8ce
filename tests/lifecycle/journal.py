"""A Python model that writes down what happens to its instances, and a client for it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tritonpy_sdk.testing import until

MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        config = json.loads(args["model_config"])
        self.journal = config["parameters"]["journal"]["string_value"]
        counts = [group["count"] for group in config["instance_group"]]
        self.tell(f"initialize {args['model_instance_kind']} {counts}")
        INITIALIZE

    def tell(self, text):
        with open(self.journal, "a") as file:
            file.write(f"{self.name} {text}\\n")

    def execute(self, requests):
        self.tell(f"execute {len(requests)}")
        EXECUTE
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            )])
            for request in requests
        ]

    def finalize(self):
        self.tell("finalize")
"""


def model(initialize: str = "pass", execute: str = "pass") -> str:
    """The model's source, with a line of the test's in two places."""
    return MODEL.replace("INITIALIZE", initialize).replace("EXECUTE", execute)


def config(journal: Path, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration of it."""
    return {
        "backend": "python",
        "max_batch_size": 8,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
        "parameters": {"journal": {"string_value": str(journal)}},
        "instance_group": [{"kind": "KIND_CPU", **group} for group in groups or ({"count": 1},)],
        **more,
    }


def warmup(batch_size: int = 1, count: int = 1, **more: Any) -> dict[str, Any]:
    """A sample for it."""
    tensor = {"data_type": "TYPE_FP32", "dims": [1], "zero_data": True}
    return {"name": "sample", "batch_size": batch_size, "count": count, "inputs": {"X": tensor}, **more}


class Journal:
    """What the model has written, read piece by piece.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def lines(self) -> list[str]:
        """What has been written since the last time."""
        text = self._path.read_text() if self._path.exists() else ""
        new, self._position = text[self._position :], len(text)
        return new.splitlines()

    def wait(self, count: int) -> list[str]:
        """The next lines, once there are as many as `count`; sorted, because instances are quick or slow."""
        lines: list[str] = []

        def are_there() -> bool:
            lines.extend(self.lines())
            return len(lines) >= count

        until(are_there, lambda: f"{count} lines, not {lines}")
        return sorted(lines)


class Client:
    """Asks a server over HTTP on one connection, which the end of a `with` closes.

    Args:
        port: of the server on this machine.
        name: of the model.
    """

    def __init__(self, port: int, name: str = "m") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        self._connection.request(method, path, None if body is None else json.dumps(body))
        response = self._connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def infer(self, value: float = 1.0, version: str = "") -> float | str:
        """What the model answers, or the error's text."""
        where = f"{self.name}/versions/{version}" if version else self.name
        tensor = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}
        status, answer = self.ask("POST", f"/v2/models/{where}/infer", {"inputs": [tensor]})
        return float(answer["outputs"][0]["data"][0]) if status == 200 else str(answer["error"])

    def load(self, config: object = None) -> str:
        """Load the model, perhaps with a configuration; the error's text, or ""."""
        body = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        status, answer = self.ask("POST", f"/v2/repository/models/{self.name}/load", body)
        return "" if status == 200 else str(answer["error"])

    def statistics(self, version: str = "1") -> dict[str, Any]:
        """The model's statistics."""
        status, answer = self.ask("GET", f"/v2/models/{self.name}/versions/{version}/stats")
        assert status == 200, answer
        return dict(answer["model_stats"][0])

    def counts(self) -> tuple[int, int, int, dict[int, int]]:
        """Inferences, executions, successes, and executions by batch size."""
        told = self.statistics()
        sizes = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in told["batch_stats"]}
        success = told["inference_stats"]["success"]["count"]
        return told["inference_count"], told["execution_count"], success, sizes

    def groups(self) -> list[tuple[str, str, int]]:
        """The instance groups in the configuration that is shown."""
        _, answer = self.ask("GET", f"/v2/models/{self.name}/config")
        return [(group["name"], group["kind"], group["count"]) for group in answer["instance_group"]]

    def close(self) -> None:
        self._connection.close()


def count_of(lines: Sequence[str], word: str) -> int:
    """How many lines tell of something."""
    return sum(word in line for line in lines)
