"""Resources of models that are unloaded, changed while they serve, or call each other; on our server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

R = {"name": "R", "count": 1}

# Number 0 is executed until the test makes a file; a number above 9 is sent to the model `called`.
MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        self.name = args["model_name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            with open(os.path.join(self.folder, "journal"), "a") as journal:
                journal.write(f"{self.name}{x.as_numpy().item()} ")
            while x.as_numpy().item() == 0 and not os.path.exists(os.path.join(self.folder, "gate")):
                time.sleep(0.001)
            if x.as_numpy().item() > 9:
                inputs = [pb_utils.Tensor("X", x.as_numpy() // 10)]
                call = pb_utils.InferenceRequest(
                    model_name="called", inputs=inputs, requested_output_names=["Y"]
                )
                response = call.exec()
                if response.has_error():
                    responses.append(pb_utils.InferenceResponse(error=response.error()))
                    continue
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())]))
        return responses
"""


class Models:
    """Models in a folder, and a server that shares resources among them."""

    def __init__(self, serve: Callable[..., Any], folder: Path) -> None:
        self._serve = serve
        self._folder = folder
        self._repository = ModelRepository(folder / "models")
        self._port = 0

    def write(self, name: str, *resources: dict[str, Any], count: int = 1) -> dict[str, Any]:
        limits = {"resources": list(resources)}
        config = {
            "backend": "python",
            "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
            "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
            "instance_group": [{"kind": "KIND_CPU", "count": count, "rate_limiter": limits}],
            "parameters": {"folder": {"string_value": str(self._folder)}},
        }
        self._repository.python(name, MODEL, config)
        return config

    def start(self, *names: str) -> None:
        server = self._serve(
            self._repository.path,
            model_control_mode="explicit",
            load_models=names,
            rate_limit="execution_count",
        )
        self._port = server.http_port

    def post(self, path: str, document: Any = None) -> str:
        """The error of a call, "" for none."""
        body = json.dumps(document or {}).encode()
        url = f"http://127.0.0.1:{self._port}/v2/{path}"
        try:
            urlopen(Request(url, body, method="POST"), timeout=DEADLINE_S).close()
        except HTTPError as error:
            return str(json.load(error)["error"])
        return ""

    def state(self, name: str) -> str:
        url = f"http://127.0.0.1:{self._port}/v2/repository/index"
        with urlopen(Request(url, b"{}", method="POST"), timeout=DEADLINE_S) as answer:
            return str(next(row["state"] for row in json.load(answer) if row["name"] == name))

    def ask(self, name: str, number: int) -> str:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [number]}
        return self.post(f"models/{name}/infer", {"inputs": [tensor]})

    def hold(self, name: str) -> threading.Thread:
        """Have a model execute until `release`."""
        thread = threading.Thread(target=self.ask, args=(name, 0))
        thread.start()
        self.until(lambda: f"{name}0" in self.executed)
        return thread

    def release(self) -> None:
        (self._folder / "gate").touch()

    @property
    def executed(self) -> list[str]:
        journal = self._folder / "journal"
        return journal.read_text().split() if journal.exists() else []

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, lambda: self.executed)


@pytest.fixture
def models(serve: Callable[..., Any], tmp_path: Path) -> Models:
    return Models(serve, tmp_path)


def test_a_model_that_is_unloaded_gives_its_resources_back_when_it_has_answered(models: Models) -> None:
    models.write("a", R)
    models.write("b", R)
    models.start("a", "b")
    held = models.hold("a")
    asked = threading.Thread(target=models.ask, args=("b", 1))
    asked.start()

    assert models.post("repository/models/a/unload") == ""
    assert models.executed == ["a0"]
    models.release()
    held.join(DEADLINE_S)
    asked.join(DEADLINE_S)

    assert models.executed == ["a0", "b1"]


def test_what_an_instance_brought_goes_with_it(models: Models) -> None:
    models.write("most", R | {"count": 2})
    models.write("a", R)
    models.write("b", R)
    models.start("most", "a", "b")
    assert models.post("repository/models/most/unload") == ""
    models.until(lambda: models.state("most") == "UNAVAILABLE")  # its instance is closed
    held = models.hold("a")
    asked = threading.Thread(target=models.ask, args=("b", 1))

    asked.start()
    asked.join(0.1)

    assert models.executed == ["a0"]  # there were two, and b would have gone
    models.release()
    held.join(DEADLINE_S)
    asked.join(DEADLINE_S)


def test_instances_that_are_exchanged_while_the_model_serves_need_what_they_say_now(models: Models) -> None:
    models.write("a", R, count=2)
    models.write("b", R)
    models.start("a", "b")
    models.write("a", R | {"count": 3})

    assert models.post("repository/models/a/load") == ""
    held = models.hold("a")
    asked = threading.Thread(target=models.ask, args=("b", 1))
    asked.start()
    asked.join(0.1)

    assert models.executed == ["a0"]
    models.release()
    held.join(DEADLINE_S)
    asked.join(DEADLINE_S)
    assert models.executed == ["a0", "b1"]


def test_a_change_that_asks_for_a_name_that_is_global_elsewhere_leaves_what_serves(models: Models) -> None:
    models.write("a", R)
    models.write("b", R)
    models.start("a", "b")
    models.write("a", R | {"global": True})

    error = models.post("repository/models/a/load")

    assert 'Resource "R" is present as both global and device-specific resource' in error
    assert models.ask("a", 1) == ""
    assert models.ask("b", 1) == ""


def test_a_call_of_a_model_that_needs_what_the_caller_holds_fails_at_once(models: Models) -> None:
    models.write("caller", R)
    models.write("called", R)
    models.start("caller", "called")

    error = models.ask("caller", 20)

    assert "model 'called' cannot be called: it would wait for ever for resources that its callers" in error
    assert "'caller_0_0'" in error
    assert models.ask("called", 1) == ""
    models.write("called", R | {"name": "S"})
    assert models.post("repository/models/called/load") == ""
    assert models.ask("caller", 30) == ""
    assert models.executed[-2:] == ["caller30", "called3"]
