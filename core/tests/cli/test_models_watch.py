"""States of models, shown as they change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tritonpy.cli.http_client import Answer, HttpClient
from tritonpy.cli.main import main
from tritonpy.cli.models_watch import IndexWatch
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

# It is loaded when the test says so.
SLOW = """
import os, time

class TritonPythonModel:
    def initialize(self, args):
        while not os.path.exists(os.path.join(args["model_repository"], "may_load")):
            time.sleep(0.01)

    def execute(self, requests):
        return []
"""


class FakeServer:
    """Answers with one index after the other, and moves the clock on meanwhile."""

    def __init__(self, *indexes: dict[str, str]) -> None:
        self._indexes = [
            [
                {"name": name, "version": "1", "state": state} if state else {"name": name}
                for name, state in index.items()
            ]
            for index in indexes
        ]
        self.now_s = 0.0

    def send(self, method: str, path: str, body: bytes) -> Answer:
        index = self._indexes.pop(0) if len(self._indexes) > 1 else self._indexes[0]
        return Answer(200, {}, json.dumps(index).encode(), "http://fake")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def watch(self, *names: str, is_terminal: bool = False) -> IndexWatch:
        return IndexWatch(
            cast("HttpClient", self),
            names,
            is_terminal=is_terminal,
            now_s=lambda: self.now_s,
            sleep=self.sleep,
        )


def test_each_change_is_a_line_until_nothing_moves(capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeServer(
        {"a": "LOADING", "b": "READY"},
        {"a": "LOADING", "b": "READY"},
        {"a": "READY", "b": "UNLOADING"},
        {"a": "READY", "b": "UNAVAILABLE"},
    )

    server.watch().run()

    assert capsys.readouterr().out.splitlines() == [
        "   0.0 s  a  1  LOADING",
        "   0.0 s  b  1  READY",
        "   0.4 s  a  1  READY",
        "   0.4 s  b  1  UNLOADING",
        "   0.6 s  b  1  UNAVAILABLE",
    ]


def test_it_goes_on_while_something_is_to_come_and_shows_only_what_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = FakeServer({"a": "", "b": "READY"}, {"b": "READY"}, {"a": "READY"})
    done = iter([False, False, True])

    server.watch("a").run(lambda: next(done))

    assert capsys.readouterr().out.splitlines() == [
        "   0.0 s  a  -  -",
        "   0.2 s  a  -  gone",
        "   0.4 s  a  1  READY",
    ]


def test_a_terminal_has_one_table_that_is_drawn_anew(capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeServer({"a": "LOADING"}, {"a": "LOADING"}, {"a": "READY"})

    server.watch(is_terminal=True).run()

    first, again = capsys.readouterr().out.split("\x1b[2A\x1b[J")
    assert first.splitlines() == ["name  version  state    reason", "a     1        LOADING  -"]
    assert again.splitlines() == ["name  version  state  reason", "a     1        READY  -"]


def test_a_table_longer_than_the_terminal_is_cut_until_it_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "5")
    server = FakeServer({f"m{number}": "LOADING" for number in range(9)}, dict.fromkeys("abcdefghi", "READY"))

    server.watch(is_terminal=True).run()

    first, again, whole = capsys.readouterr().out.split("\x1b[4A\x1b[J")
    assert first.splitlines() == [
        "name  version  state    reason",
        "m0    1        LOADING  -",
        "m1    1        LOADING  -",
        "... and 7 more",
    ]
    assert again.splitlines()[-1] == "... and 7 more"
    assert len(whole.splitlines()) == 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    models = ModelRepository(tmp_path)
    models.python("slow", SLOW, {"backend": "python"})
    models.python("broken", "nope", {"backend": "python"})
    options = ServerOptions(
        (str(tmp_path),),
        model_control_mode="explicit",
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
    )
    with Server(options) as started:
        yield started


def let_load(repository: Path) -> None:
    """Let the model be loaded, now and later."""
    (repository / "slow" / "may_load").touch()


def states(text: str) -> list[str]:
    """The last word of each line that begins with a time."""
    return [line.split()[4] for line in text.splitlines() if line.startswith("  ")]


def test_loads_and_unloads_show_the_states_on_their_way(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"--url=127.0.0.1:{server.http_port}"
    registry = server.runtime.registry
    index = registry.index

    def answer(*args: Any, **options: Any) -> Any:
        entries = index(*args, **options)
        if any(entry.get("state") == "LOADING" for entry in entries):
            let_load(tmp_path)  # its state is on the way to who watches
        return entries

    monkeypatch.setattr(registry, "index", answer)

    assert main(["models", "load", "slow", "--watch", url]) == 0
    out = capsys.readouterr().out
    assert states(out)[-2:] == ["LOADING", "READY"]
    assert "loaded slow" in out.splitlines()

    assert main(["models", "reload", "slow", "--watch", url]) == 0
    assert "reloaded slow" in capsys.readouterr().out.splitlines()

    assert main(["models", "unload", "slow", "--watch", url]) == 0
    assert states(capsys.readouterr().out)[-1] == "UNAVAILABLE"

    assert main(["models", "load", "broken", "--watch", url]) == 1
    printed = capsys.readouterr()
    assert states(printed.out)[-1] == "UNAVAILABLE"
    assert "load failed for model 'broken'" in printed.err

    assert main(["models", "index", "--watch", url]) == 0
    assert states(capsys.readouterr().out) == ["UNAVAILABLE", "UNAVAILABLE"]
    assert main(["models", "index", "--watch", "--json", url]) == 1


def test_an_interrupt_ends_the_watching_and_not_the_load(server: Server, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("corectl")), "models", "load", "slow", "--watch"]
    with subprocess.Popen(
        [*command, f"--url=127.0.0.1:{server.http_port}"],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.PIPE,
    ) as watcher:
        assert watcher.stdout is not None
        for line in watcher.stdout:
            if "LOADING" in line:
                break
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=60)

    assert watcher.returncode == 130
    let_load(tmp_path)
    until(lambda: server.runtime.registry.index()[-1].get("state") == "READY")
