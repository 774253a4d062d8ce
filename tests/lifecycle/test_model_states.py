"""Loads and unloads one after the other, well and badly: what is answered and what the index says then."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..differential.servers import Server as ServerProcess
from ..servers import OURS_AND_REAL, local_options
from .poll_scenario import CONFIG, Client, LocalTree, Owner

ALL = f"{CONFIG}\nversion_policy {{ all {{}} }}"
READY = ("1", "READY", "")
UNLOADED = ("1", "UNAVAILABLE", "unloaded")
OVERRIDE: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
    "parameters": {"mark": {"string_value": "from the request"}},
}


class Control(Client):
    """A server in explicit mode, and the owner of its repository.

    Attributes:
        owner: writes models.
        is_real: whether it is a real tritonserver.
    """

    def __init__(self, port: int, owner: Owner, is_real: bool) -> None:
        super().__init__(port)
        self.owner = owner
        self.is_real = is_real

    def load(self, name: str, config: dict[str, Any] | None = None, **files: str) -> tuple[int, str]:
        """Status and error of a load."""
        parameters = {} if config is None else {"config": json.dumps(config)}
        for path, text in files.items():
            parameters[f"file:{path}"] = base64.b64encode(text.encode()).decode()
        body = {"parameters": parameters} if parameters else None
        status, text = self.send("POST", f"/v2/repository/models/{name}/load", body)
        return status, json.loads(text)["error"] if text else ""

    def unload(self, name: str) -> int:
        """The status of an unload."""
        return self.send("POST", f"/v2/repository/models/{name}/unload")[0]

    def comes_to(self, name: str, *rows: tuple[str, str, str]) -> bool:
        """Whether the index says so before long; a reason need only begin so."""

        def is_so() -> bool:
            found = sorted(self.rows(name))
            return len(found) == len(rows) and all(
                row[:2] == wanted[:2] and row[2].startswith(wanted[2]) and bool(row[2]) is bool(wanted[2])
                for row, wanted in zip(found, rows, strict=True)
            )

        return until(is_so, lambda: f"{rows}, not {self.rows(name)}")

    def is_marked(self, name: str) -> bool:
        """Whether the configuration that came with a request is in force."""
        return "from the request" in self.send("GET", f"/v2/models/{name}/config")[1]

    def add(self, name: str, number: int = 1, version: int = 1, config: str = CONFIG) -> None:
        """Lay out a model that can be loaded."""
        self.owner.config(name, config)
        self.owner.code(name, number, version)


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def begin(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Control]]:
    root: Path = tmp_path_factory.mktemp("models")
    owner = Owner(LocalTree(root))
    if request.param == "real":
        flags = ["--model-control-mode=explicit"]
        log = tmp_path_factory.mktemp("log") / "log"
        real = ServerProcess(root, log, is_real=True, options=flags)

        def running() -> Control:
            if real.has_ended:  # over an earlier test, which has failed
                real.restart()
            return Control(real.ports["http"], owner, is_real=True)

        yield running
        real.kill()  # after a failed load it does not end by itself
        return
    options = local_options(root, model_control_mode="explicit", allow_grpc=False, allow_metrics=False)
    with Server(options) as server:
        yield lambda: Control(server.http_port, owner, is_real=False)


@pytest.fixture
def control(begin: Callable[[], Control]) -> Control:
    return begin()


def test_unloaded_twice_and_loaded_again(control: Control) -> None:
    control.add("twice")
    assert control.load("twice") == (200, "")

    assert [control.unload("twice"), control.unload("twice")] == [200, 200]
    assert control.comes_to("twice", UNLOADED)
    assert control.unload("twice") == 200
    assert control.comes_to("twice", UNLOADED)
    assert control.load("twice") == (200, "")
    assert control.comes_to("twice", READY)


def test_a_configuration_that_breaks_and_is_mended(control: Control) -> None:
    control.add("config", config="nonsense: 1")
    assert control.load("config")[0] == 500
    assert control.comes_to("config", ("", "", ""))

    control.add("config")
    assert control.load("config") == (200, "")
    control.add("config", 2, config="nonsense: 1")
    status, error = control.load("config")
    assert status == 500
    assert error.startswith("failed to load 'config', failed to poll from model repository")
    assert control.comes_to("config", READY)
    assert control.infer("config") == 1
    control.add("config", 2)
    assert control.load("config") == (200, "")
    assert control.infer("config") == 2


def test_a_policy_that_selects_nothing(control: Control) -> None:
    control.add("policy", config=f"{CONFIG}\nversion_policy {{ specific {{ versions: 7 }} }}")
    words = "at least one version must be available under the version policy of model 'policy'"

    assert control.load("policy") == (400, f"load failed for model 'policy': {words}\n")
    if control.is_real:  # it is not in the index at all
        assert control.comes_to("policy")
    else:
        assert control.comes_to("policy", ("", "UNAVAILABLE", f"Invalid argument: {words}"))
    control.add("policy")
    assert control.load("policy") == (200, "")
    control.owner.config("policy", f"{CONFIG}\nversion_policy {{ specific {{ versions: 7 }} }}")
    assert control.load("policy") == (400, f"load failed for model 'policy': {words}\n")
    assert control.comes_to("policy", READY)
    assert control.infer("policy") == 1


def test_a_new_version_that_fails_beside_one_that_serves(control: Control) -> None:
    control.add("beside", config=ALL)
    assert control.load("beside") == (200, "")
    control.owner.broken_code("beside", version=2)

    status, error = control.load("beside")

    assert status == 400
    assert error.startswith("load failed for model 'beside': version 2 is at UNAVAILABLE state: Internal: ")
    assert control.infer("beside", 1) == 1
    assert control.comes_to("beside", READY, ("2", "UNAVAILABLE", "Internal: ValueError: boom"))
    control.owner.code("beside", 2, version=2)
    assert control.load("beside") == (200, "")
    assert control.comes_to("beside", READY, ("2", "READY", ""))
    assert (control.infer("beside"), control.infer("beside", 1)) == (2, 1)


def test_of_a_first_load_all_versions_are_there_or_none(control: Control) -> None:
    control.add("none", config=ALL)
    control.owner.broken_code("none", version=2)

    assert control.load("none")[0] == 400
    assert control.comes_to("none", UNLOADED, ("2", "UNAVAILABLE", "Internal: ValueError: boom"))
    assert isinstance(control.infer("none"), str)


def test_what_failed_and_is_unloaded_keeps_its_reason(control: Control) -> None:
    control.add("failed")
    control.owner.broken_code("failed")
    assert control.load("failed")[0] == 400

    assert control.unload("failed") == 200

    assert control.comes_to("failed", ("1", "UNAVAILABLE", "Internal: ValueError: boom"))
    control.add("failed", 3)
    assert control.load("failed") == (200, "")
    assert control.comes_to("failed", READY)


def test_a_configuration_of_a_request_stays_until_the_files_change(control: Control) -> None:
    control.add("override")
    assert control.load("override", OVERRIDE) == (200, "")
    assert control.is_marked("override")

    assert control.load("override") == (200, "")
    assert control.is_marked("override")
    control.add("override", 2)
    assert control.load("override") == (200, "")
    assert control.infer("override") == 2
    assert not control.is_marked("override")


def test_files_of_a_request_are_replaced_by_those_of_the_repository(control: Control) -> None:
    control.add("files")
    code = (control.owner.tree.root / "files/1/model.py").read_text()  # type: ignore[attr-defined]
    assert control.load("files", OVERRIDE, **{"4/model.py": code.replace("+ 1", "+ 40")}) == (200, "")
    assert control.infer("files") == 40

    assert control.load("files") == (200, "")

    assert control.infer("files") == 1
    assert control.comes_to("files", READY, ("4", "UNAVAILABLE", "unloaded"))


def test_requests_for_a_model_that_is_being_loaded_wait_for_it(control: Control, tmp_path: Path) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    control.owner.config("slow")
    waiting = (
        f"import os, time\n        open({str(begun)!r}, 'w').close()\n"
        f"        while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    )
    control.owner.code("slow", 1, initialize=waiting)
    statuses: list[int] = []

    def ask(call: Callable[[str], Any]) -> threading.Thread:
        thread = threading.Thread(target=lambda: statuses.append(call("slow")))
        thread.start()
        return thread

    threads = [ask(lambda name: control.load(name)[0])]
    until(begun.exists)
    threads += [ask(lambda name: control.load(name)[0]) for _ in range(3)]
    if not control.is_real:  # a thread that waits for a load over there may keep this waiting, too
        assert control.comes_to("slow", ("1", "LOADING", ""))
    assert statuses == []
    gate.touch()
    for thread in threads:
        thread.join(20)

    assert statuses == [200] * 4
    assert control.comes_to("slow", READY)
    assert control.unload("slow") == 200
