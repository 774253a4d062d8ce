"""What an owner of a repository does to it while a server in mode *poll* follows, step by step.

The same steps are made in a directory and in an object store, with our server and with a real one.
"""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from tritonpy.lifecycle.polling import RepositoryWatcher
from tritonpy_sdk.testing import DEADLINE_S, until

CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
_CODE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        {initialize}
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + {number}
        )]) for request in requests]
"""


class Tree(Protocol):
    """A repository that can be changed."""

    def write(self, path: str, content: str) -> None:
        """Make a file, or another one in its place; `path` is relative, as `model/1/model.py`."""

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it."""


class LocalTree:
    """A directory of this machine.

    Args:
        root: is made.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: str) -> None:
        """See `Tree`."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        # What Python would write beside the code is a change for a real server, which then loads the model
        # again and again; a file of that name keeps Python from it.
        (file.parent / "__pycache__").touch()
        file.write_text(content)

    def delete(self, path: str) -> None:
        """See `Tree`."""
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()


class Owner:
    """Writes Python models that add a number into a tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def code(self, name: str, number: int, version: int = 1, initialize: str = "pass") -> None:
        """Write the code of a version."""
        self.tree.write(f"{name}/{version}/model.py", _CODE.format(number=number, initialize=initialize))

    def broken_code(self, name: str, version: int = 1) -> None:
        """Write code that cannot be loaded."""
        self.code(name, 0, version, "raise ValueError('boom')")

    def config(self, name: str, text: str = CONFIG) -> None:
        """Write the configuration."""
        self.tree.write(f"{name}/config.pbtxt", text)


class Client:
    """Asks a server over HTTP.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def send(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def infer(self, name: str, version: int | None = None) -> int | str:
        """What a model adds, or why it does not."""
        tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}
        path = f"/v2/models/{name}" if version is None else f"/v2/models/{name}/versions/{version}"
        answer = json.loads(self.send("POST", f"{path}/infer", {"inputs": [tensor]})[1])
        return answer["error"] if "error" in answer else answer["outputs"][0]["data"][0]  # type: ignore[no-any-return]

    def rows(self, name: str) -> list[tuple[str, str, str]]:
        """Version, state and reason of a model in the index."""
        index = json.loads(self.send("POST", "/v2/repository/index")[1])
        return [
            (row.get("version", ""), row.get("state", ""), row.get("reason", ""))
            for row in index
            if row["name"] == name
        ]

    def is_ready(self) -> bool:
        """Whether the server is."""
        return self.send("GET", "/v2/health/ready")[0] == 200


@dataclass(frozen=True)
class Step:
    """One thing that happens to the repository.

    Attributes:
        name: what.
        act: does it.
        is_seen: whether the server shows it.
        is_told: whether our server shows what a real one has in its log alone.
    """

    name: str
    act: Callable[[Owner], None]
    is_seen: Callable[[Client], bool]
    is_told: Callable[[Client], bool] = lambda _: True


def _says(client: Client, name: str, *words: str) -> bool:
    reasons = [reason for _, _, reason in client.rows(name)]
    return any(all(word in reason for word in words) for reason in reasons)


def _is_gone(client: Client, name: str) -> bool:
    return not client.rows(name) and isinstance(client.infer(name), str)


def _add(owner: Owner) -> None:
    owner.config("m")
    owner.code("m", 10)


def _mend_config(owner: Owner) -> None:
    owner.config("m", f"{CONFIG}\nparameters {{ key: 'mended' value {{ string_value: 'yes' }} }}")


def _add_sick(owner: Owner) -> None:
    owner.config("sick")
    owner.broken_code("sick")


STEPS = (
    Step("add a model", _add, lambda client: client.infer("m") == 10),
    Step("change it", lambda owner: owner.code("m", 11), lambda client: client.infer("m") == 11),
    Step(
        "break its code",
        lambda owner: owner.broken_code("m"),
        lambda client: client.infer("m") == 11,
        lambda client: _says(client, "m", "goes on serving", "boom"),
    ),
    Step(
        "mend its code",
        lambda owner: owner.code("m", 12),
        lambda client: client.infer("m") == 12 and client.rows("m") == [("1", "READY", "")],
    ),
    Step(
        "break its configuration",
        lambda owner: owner.config("m", "nonsense: 1"),
        lambda client: client.infer("m") == 12,
        lambda client: _says(client, "m", "goes on serving", "nonsense"),
    ),
    Step(
        "mend its configuration",
        _mend_config,
        lambda client: "mended" in client.send("GET", "/v2/models/m/config")[1] and client.infer("m") == 12,
        lambda client: client.rows("m") == [("1", "READY", "")],
    ),
    Step(
        "add a version",
        lambda owner: owner.code("m", 20, version=2),
        lambda client: client.infer("m") == 20 and isinstance(client.infer("m", 1), str),
    ),
    Step(
        "remove a version",
        lambda owner: owner.tree.delete("m/2"),
        lambda client: client.infer("m") == 12 and isinstance(client.infer("m", 2), str),
    ),
    Step(
        "add a broken model",
        _add_sick,
        lambda client: _says(client, "sick", "boom"),
        lambda client: not client.is_ready(),
    ),
    Step("mend it", lambda owner: owner.code("sick", 30), lambda client: client.infer("sick") == 30),
    Step("remove it", lambda owner: owner.tree.delete("sick"), lambda client: _is_gone(client, "sick")),
    Step(
        "add a model with a broken configuration",
        lambda owner: owner.config("sick", "nonsense: 1"),
        lambda client: bool(client.rows("sick")) and isinstance(client.infer("sick"), str),
        lambda client: _says(client, "sick", "nonsense"),
    ),
    Step(
        "remove it, too",
        lambda owner: owner.tree.delete("sick"),
        lambda client: _is_gone(client, "sick"),
        lambda client: client.is_ready(),
    ),
    Step("remove the first one", lambda owner: owner.tree.delete("m"), lambda client: _is_gone(client, "m")),
    Step("add it again", _add, lambda client: client.infer("m") == 10),
)


def begin(tree: Tree) -> Owner:
    """Lay out what is there when the server starts: a model that nobody touches."""
    owner = Owner(tree)
    owner.config("steady")
    owner.code("steady", 1)
    return owner


def run(owner: Owner, client: Client, poll_twice: Callable[[], None], *, is_ours: bool) -> None:
    """Make the steps; each must be seen after two polls, and none may disturb the model nobody touches.

    Args:
        owner: as from `begin`.
        client: asks the server.
        poll_twice: lets the server look twice; what it then begins is waited for.
        is_ours: whether what only our server shows is looked for, too.
    """
    for step in STEPS:
        step.act(owner)
        poll_twice()

        def is_seen(step: Step = step) -> bool:
            assert client.infer("steady") == 1, step.name
            return step.is_seen(client) and (not is_ours or step.is_told(client))

        def told(step: Step = step) -> str:
            rows = {name: client.rows(name) for name in ("m", "sick")}
            return f"'{step.name}' is seen: {rows}, m answers {client.infer('m')}"

        until(is_seen, told)


class PollsByHand:
    """Our server looks at its repositories when the test says so, and at no other time."""

    def __init__(self) -> None:
        self._due = threading.Semaphore(0)
        self._waiting = threading.Semaphore(0)
        self._is_over = False

    def wait(self, interval_s: float) -> bool:
        """What the watcher calls."""
        self._waiting.release()
        self._due.acquire()
        return self._is_over

    def poll(self, times: int = 1) -> None:
        """Let the server look, and return when what it saw is with its loop."""
        for _ in range(times):
            assert self._waiting.acquire(timeout=DEADLINE_S)
            self._due.release()
        assert self._waiting.acquire(timeout=DEADLINE_S)
        self._waiting.release()

    def end(self) -> None:
        """Let the watcher stop."""
        self._is_over = True
        self._due.release()


def polls_by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[PollsByHand]:
    """For a fixture: servers that are started in this process while it lasts are polled by hand."""
    polls = PollsByHand()

    class Watcher(RepositoryWatcher):
        def __init__(self, look: object, on_look: object, interval_s: float) -> None:
            super().__init__(look, on_look, interval_s, wait=polls.wait)  # type: ignore[arg-type]

        def stop(self) -> None:
            polls.end()
            super().stop()

    monkeypatch.setattr("tritonpy.runtime.RepositoryWatcher", Watcher)
    yield polls
    polls.end()
