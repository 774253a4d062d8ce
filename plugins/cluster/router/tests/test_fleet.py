"""`corectl cluster`: servers of this machine that are started, restarted, scaled and replaced, as one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from click.testing import CliRunner
from tritonpy.errors import Unavailable
from tritonpy_router.cluster_cli import cluster, split_flags, table
from tritonpy_router.cluster_control import ask
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import BODY, ECHO, asked

CORECTL = (sys.executable, "-m", "tritonpy.cli.main")


class Running:
    """A fleet in a process of its own.

    Args:
        folder: for its socket.
        arguments: of `corectl cluster local`.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        self._socket = folder / "tritonpy-cluster-default.sock"
        ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--http-address=127.0.0.1")
        self.process = subprocess.Popen(
            [*CORECTL, "cluster", "local", arguments[0], *ports, *arguments[1:]],
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))

    def found(self, pattern: str) -> list[str]:
        return [found[1] for line in list(self.log) if (found := re.search(pattern, line))]

    @property
    def http(self) -> str:
        until(lambda: self.found(r"HTTP on port (\d+)"), self.last_lines)
        return f"127.0.0.1:{self.found(r'HTTP on port ([0-9]+)')[0]}"

    def ask(self, **question: Any) -> dict[str, Any]:
        return ask(self._socket, question, 3 * DEADLINE_S)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*CORECTL, "cluster", *words]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=3 * DEADLINE_S
        )

    def last_lines(self) -> str:
        return "".join(self.log[-30:])

    @property
    def servers(self) -> list[dict[str, Any]]:
        """Those that it names; none before it is there to be asked."""
        try:
            rows: list[dict[str, Any]] = self.ask(do="status")["servers"]
        except Unavailable:
            return []
        return rows

    def wait_until_ready(self, count: int) -> list[dict[str, Any]]:
        ready = ["ready"] * count
        until(lambda: [row["state"] for row in self.servers] == ready, self.last_lines)
        return self.servers

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    ModelRepository(tmp_path / "models").model("echo", ECHO)
    with ExitStack() as stack:

        def start(*arguments: str) -> Running:
            running = Running(tmp_path, *arguments, f"--model-repository={tmp_path / 'models'}")
            stack.callback(running.close)
            return running

        yield start


def token_file(pid: int) -> Path:
    """The file with the fleet's token that a server was told of."""
    (found,) = [
        word.partition("token-file=")[2] for word in psutil.Process(pid).cmdline() if "token-file=" in word
    ]
    return Path(found)


@pytest.mark.timeout(180)
def test_a_fleet_restarts_what_dies_scales_and_ends(fleet: Callable[..., Running]) -> None:
    running = fleet("2")
    first, second = running.wait_until_ready(2)
    address = running.http
    until(lambda: all("queue_ms" in row for row in running.servers))  # they tell, with a token of the fleet's

    token_file(first["pid"]).unlink()  # as cleaners of temporary files do after some days

    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: running.servers[0]["pid"] != first["pid"])  # what it had accepted is lost with it
    meanwhile = [asked(address, "/v2/models/echo/infer", BODY)[0] for _ in range(5)]
    until(lambda: running.servers[0]["restarts"] == 1 and running.servers[0]["state"] == "ready")
    until(lambda: "queue_ms" in running.servers[0])
    written_anew = token_file(running.servers[0]["pid"])
    running.ask(do="scale", count=1)
    left = json.loads(running.command("status", "--json").stdout)
    after = asked(address, "/v2/models/echo/infer", BODY)[0]
    running.ask(do="down")
    status = running.process.wait(60)

    assert (meanwhile, after) == ([200] * 5, 200)
    assert [row["name"] for row in left] == [first["name"]]
    assert left[0]["pid"] != first["pid"]
    assert (status, running.found(r"(Fleet stopped)")) == (0, ["Fleet stopped"])
    assert second["metrics"]
    assert not written_anew.exists()


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_servers_are_replaced_one_by_one_while_requests_are_answered(
    fleet: Callable[..., Running],
) -> None:
    running = fleet("2")
    before = running.wait_until_ready(2)
    address, is_over = running.http, threading.Event()

    def ask() -> set[int]:
        seen = set()
        while not is_over.is_set():
            seen.add(asked(address, "/v2/models/echo/infer", BODY)[0])
        return seen

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            assert running.ask(do="update") == {"failure": ""}
        finally:
            is_over.set()

    assert {status for each in asking for status in each.result()} == {200}
    assert not {row["pid"] for row in before} & {row["pid"] for row in running.servers}
    assert len(running.servers) == 2


@pytest.mark.stress
@pytest.mark.timeout(180)
def test_without_a_router_all_servers_listen_on_one_port(
    fleet: Callable[..., Running], tmp_path: Path
) -> None:
    port, grpc_port = free_ports(2)
    running = fleet("2", "--no-router", f"--http-port={port}", f"--grpc-port={grpc_port}")
    until(lambda: [row["http"] for row in running.servers] == [port, port], running.last_lines)

    assert [asked(f"127.0.0.1:{port}", "/v2/models/echo/infer", BODY)[0] for _ in range(4)] == [200] * 4


def test_flags_go_to_the_router_to_servers_or_to_both() -> None:
    words = ["--http-port", "81", "--policy=least-busy", "--load-model", "a", "--log-format=json", "--reload"]
    words += ["--trace-config", "rate=7"]

    router, servers = split_flags(click.Context(cluster), words)

    both = ["--trace-config", "rate=7"]
    assert router == ["--http-port", "81", "--policy=least-busy", "--log-format=json", *both]
    assert servers == ["--load-model", "a", "--log-format=json", "--reload", *both]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["local", "2"], "--model-repository must be specified"),
        (["local", "0", "-r", "m"], "COUNT"),
        (["local", "2", "-r", "m", "word"], "unexpected argument 'word'"),
        (["local", "2", "-r", "m", "--nosuch"], "unrecognized option '--nosuch'"),
        (["local", "2", "-r", "m", "--policy=x"], "two-choices"),
        (["local", "2", "-r", "m", "--log-file=f"], "--log-file is not for fleets"),
        (["status", "--name=nosuch"], "no fleet answers at"),
    ],
)
def test_what_it_cannot_do_is_refused(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(cluster, arguments)

    assert result.exit_code != 0
    assert text in result.output


def test_a_table_has_a_line_for_each_server() -> None:
    row = {
        "name": "server-1",
        "pid": None,
        "state": "down",
        "http": 1,
        "grpc": 2,
        "metrics": None,
        "restarts": 0,
    }

    assert table([row]).splitlines() == [
        "name      pid  state  http  grpc  metrics  restarts",
        "server-1  -    down   1     2     -        0",
    ]
    told = {**row, "inflight": 3, "pending": 1, "queue_ms": 2.5}
    assert [line.split()[-3:] for line in table([told, row]).splitlines()] == [
        ["inflight", "pending", "queue_ms"],
        ["3", "1", "2.5"],
        ["-", "-", "-"],
    ]
