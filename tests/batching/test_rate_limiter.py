"""Models that share resources, on our server and on a real one: who executes, in which order."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import OURS_AND_REAL, serving

# Writes down who executes; number 0 is executed until the test makes a file, number -1 ends the worker then.
MODEL = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        self.name = args["model_name"].rpartition("-")[2]
        self.instance = args["model_instance_name"]

    def note(self, text):
        with open(os.path.join(self.folder, "journal"), "a") as journal:
            journal.write(text + "\\n")

    def execute(self, requests):
        responses = []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "X")
            self.note(f"{self.name}{number.as_numpy().item()} {self.instance}")
            while number.as_numpy().item() <= 0 and not os.path.exists(os.path.join(self.folder, "gate")):
                time.sleep(0.001)
            if number.as_numpy().item() == -1:
                os._exit(1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", number.as_numpy())]))
        return responses
"""

R = {"name": "R", "count": 1}
CASES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "equal": {name: [{"resources": [R]}] for name in "gab"},
    "priority": {
        "g": [{"resources": [R]}],
        "a": [{"resources": [R]}],
        "b": [{"resources": [R], "priority": 2}],
    },
    "most": {
        "g": [{"resources": [R | {"count": 2}]}],
        "a": [{"resources": [R]}],
        "b": [{"resources": [R]}],
    },
    "apart": {
        "g": [{"resources": [R]}],
        "a": [{"resources": [R]}],
        "b": [{"resources": [R | {"name": "S"}]}],
    },
    "groups": {"a": [{"priority": 1}, {"priority": 3}]},
    "late": {"a": [{"resources": [R]}], "b": [{"resources": [R]}]},
    "death": {"g": [{"resources": [R]}], "a": [{"resources": [R]}]},
    "global": {"g": [{"resources": [R | {"global": True}]}], "a": [{"resources": [R | {"global": True}]}]},
}


def named(resources: list[dict[str, Any]], case: str) -> list[dict[str, Any]]:
    """The resources of a case, which no other case has."""
    return [resource | {"name": f"{case}-{resource['name']}"} for resource in resources]


def config(folder: Path, limits: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "backend": "python",
        "max_batch_size": 1,
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1, "rate_limiter": limit} for limit in limits],
        "parameters": {"folder": {"string_value": str(folder)}},
    }


class Asker:
    """Asks the models of one case; those that get number 0 are busy until `release`."""

    def __init__(
        self, case: str, ports: Mapping[str, int], folder: Path, pool: ThreadPoolExecutor, *, is_real: bool
    ) -> None:
        self.is_real = is_real
        self._case = case
        self._http, self._metrics = ports["http"], ports["metrics"]
        self._folder = folder
        self._pool = pool
        self._waiting: dict[str, int] = {}

    def ask(self, model: str, number: int, *, waits: bool = False) -> Future[tuple[int, str]]:
        """Send a request; returns when it waits, or is executed."""
        answer = self._pool.submit(self._infer, f"{self._case}-{model}", number)
        if waits:
            self._waiting[model] = self._waiting.get(model, 0) + 1
            self.until(lambda: self.pending(model) == self._waiting[model])
        else:
            self.until(lambda: f"{model}{number}" in self.executed)
        return answer

    def release(self, count: int) -> list[str]:
        """Let everything run; what was executed then, when it is so much."""
        before = len(self.executed)
        (self._folder / "gate").touch()
        self.until(lambda: len(self.executed) == before + count)
        return self.executed[before:]

    @property
    def executed(self) -> list[str]:
        return [line.split()[0] for line in self.journal]

    @property
    def journal(self) -> list[str]:
        path = self._folder / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def pending(self, model: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        name = f"{self._case}-{model}"
        found = re.search(rf'nv_inference_pending_request_count{{model="{name}",.*}} (\d+)', text)
        return int(found[1]) if found else 0

    def _infer(self, name: str, number: int) -> tuple[int, str]:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [number]}
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=DEADLINE_S)
        try:
            connection.request("POST", f"/v2/models/{name}/infer", json.dumps({"inputs": [tensor]}))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("error", "")
        finally:
            connection.close()

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, lambda: (self._case, self.journal, self._waiting))


Ask = Callable[[str], Asker]


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def asker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    root = tmp_path_factory.mktemp(request.param)
    models = ModelRepository(root / "models")
    for case, groups in CASES.items():
        (root / case).mkdir()
        for name, limits in groups.items():
            own = [limit | {"resources": named(limit.get("resources", []), case)} for limit in limits]
            models.python(f"{case}-{name}", MODEL, config(root / case, own))
    with ExitStack() as stack:
        ports = stack.enter_context(limited(request.param, request, models.path))
        pool = stack.enter_context(ThreadPoolExecutor(32))
        try:
            yield lambda case: Asker(case, ports, root / case, pool, is_real=request.param == "real")
        finally:
            for case in CASES:  # whoever still waits is answered
                (root / case / "gate").touch()


def limited(
    kind: str, request: pytest.FixtureRequest, models: Path, *flags: str, **options: Any
) -> AbstractContextManager[dict[str, int]]:
    """Serve models with a rate limiter."""
    flags = ("--rate-limit=execution_count", *flags)
    return serving(kind, request, models, *flags, allow_grpc=False, rate_limit="execution_count", **options)


def test_models_that_need_the_same_resource_take_turns(asker: Ask) -> None:
    models = asker("equal")
    models.ask("g", 0)
    for number in (1, 2, 3):
        models.ask("a", number, waits=True)
    for number in (1, 2, 3):
        models.ask("b", number, waits=True)

    assert models.release(6) == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_a_priority_of_2_has_half_the_turns(asker: Ask) -> None:
    models = asker("priority")
    models.ask("g", 0)
    for number in (1, 2, 3, 4):
        models.ask("b", number, waits=True)
    for number in (1, 2, 3, 4):
        models.ask("a", number, waits=True)

    assert models.release(8) == ["a1", "a2", "b1", "a3", "a4", "b2", "b3", "b4"]


def test_a_global_resource_is_waited_for_too(asker: Ask) -> None:
    models = asker("global")
    models.ask("g", 0)
    models.ask("a", 1, waits=True)

    assert models.release(1) == ["a1"]


def test_of_the_instances_of_a_model_the_one_with_the_lowest_number_executes(asker: Ask) -> None:
    models = asker("groups")

    for number in range(1, 11):
        models.ask("a", number).result(DEADLINE_S)
        if models.is_real:  # it answers before the instance is free again
            time.sleep(0.25)

    groups = [line.rpartition(" ")[2].removeprefix("groups-a_") for line in models.journal]
    assert groups == ["0_0", "0_0", "0_0", "0_0", "1_0", "0_0", "0_0", "0_0", "1_0", "0_0"]


ours_alone = pytest.mark.parametrize("asker", ["ours"], indirect=True)


@ours_alone
def test_everybody_goes_for_whom_an_end_leaves_enough(asker: Ask) -> None:
    models = asker("most")
    models.ask("g", 0)
    models.ask("a", 0, waits=True)
    models.ask("b", 0, waits=True)
    assert models.executed == ["g0"]

    assert sorted(models.release(2)) == ["a0", "b0"]


@ours_alone
def test_a_model_that_needs_something_else_is_not_held_up(asker: Ask) -> None:
    models = asker("apart")
    models.ask("g", 0)
    models.ask("a", 1, waits=True)

    models.ask("b", 1).result(DEADLINE_S)

    assert models.executed == ["g0", "b1"]
    assert models.release(1) == ["a1"]


@ours_alone
def test_a_model_that_comes_late_shares_from_then_on(asker: Ask) -> None:
    models = asker("late")
    for number in (1, 2, 3, 4, 5):
        models.ask("a", number).result(DEADLINE_S)
    models.ask("a", 0)
    for number in (11, 12, 13):
        models.ask("a", number, waits=True)
    for number in (1, 2, 3):
        models.ask("b", number, waits=True)

    assert models.release(6) == ["b1", "a11", "b2", "a12", "b3", "a13"]


@ours_alone
def test_a_worker_that_dies_gives_its_resources_back(asker: Ask) -> None:
    models = asker("death")
    dies = models.ask("g", -1)
    models.ask("a", 1, waits=True)

    assert models.release(1) == ["a1"]
    assert dies.result(DEADLINE_S)[0] == 500
    models.ask("g", 1).result(DEADLINE_S)


@pytest.mark.parametrize("server", OURS_AND_REAL)
def test_instances_that_could_never_execute_are_not_loaded(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    models = ModelRepository(tmp_path)
    needs: dict[str, list[dict[str, Any]]] = {
        "a_little": [R],
        "too_much": [R | {"count": 3}],
        "unheard": [R | {"name": "S"}],
        "shared": [R | {"global": True}],
    }
    for name, resources in needs.items():
        models.python(name, MODEL, config(tmp_path, [{"resources": resources}]))
    flags = ("--rate-limit-resource=R:2", "--exit-on-error=false", "--strict-readiness=false")
    options = {"rate_limit_resources": (("R", 2, None),), "exit_on_error": False}
    with limited(server, request, tmp_path, *flags, **options) as ports:
        url = f"http://127.0.0.1:{ports['http']}/v2/repository/index"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=DEADLINE_S) as answer:
            reasons = {entry["name"]: entry.get("reason", "") for entry in json.load(answer)}

    limit = 'Resource count for "{}" is limited to {} which will prevent scheduling of one or more model '
    limit += "instances, the minimum required count is {}"
    assert limit.format("R", 2, 3) in reasons["too_much"]
    assert limit.format("S", 0, 1) in reasons["unheard"]
    # Whichever of the two was loaded first is served.
    both = 'Resource "R" is present as both global and device-specific resource in the model configuration.'
    assert sorted(both in reasons[name] for name in ("a_little", "shared")) == [False, True]
