"""Servers for the tests across packages: in this process, as `corectl serve`, and the real tritonserver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import ServerProcess

from .servers import CommandServer, local_options

ROOT = Path(__file__).parent.parent
REAL_STOP_S = 15
REAL_TIMEOUT_S = 240

ServerFactory = Callable[..., Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real server with many models takes its time to start, which it does within the first test."""
    for item in items:
        if item.get_closest_marker("parity") is not None and _timeout_s(item) < REAL_TIMEOUT_S:
            item.add_marker(pytest.mark.timeout(REAL_TIMEOUT_S), append=False)


def _timeout_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None else 0.0


@pytest.fixture
def serve() -> Iterator[ServerFactory]:
    """Start servers in this process on free ports; they stop when the test is over."""
    with ExitStack() as stack:

        def start(*repositories: Path, **options: object) -> Server:
            return stack.enter_context(Server(local_options(*repositories, **options)))

        yield start


class RealTritons:
    """Starts real tritonservers. Called with a repository and flags, it returns the ports of one."""

    def __init__(self) -> None:
        self._started: dict[int, subprocess.Popen[str]] = {}

    def __call__(self, repository: Path, *flags: str) -> dict[str, int]:
        for _ in range(3):  # one that loads several models may crash by chance
            if (ports := self._start(repository, *flags)) is not None:
                return ports
        pytest.fail("the real tritonserver did not start, three times")

    def _start(self, repository: Path, *flags: str) -> dict[str, int] | None:
        process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "benchmarks/real_triton.py"),
                "serve",
                "--model-repository",
                str(repository),
                "--http-port",
                "0",
                "--grpc-port",
                "0",
                "--metrics-port",
                "0",
                "--",
                "--exit-timeout-secs=5",  # it waits that long for idle connections
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout as stdout:
            line = stdout.readline()
        if not line:
            process.wait(60)
            return None
        ports: dict[str, int] = json.loads(line)
        if (earlier := self._started.get(ports["pid"])) is not None:  # it has ended, and its number was free
            earlier.wait(REAL_STOP_S)
        self._started[ports["pid"]] = process
        return ports

    def end(self, ports: Mapping[str, int]) -> None:
        """Tell one to end that is not needed any more; it does so while the tests go on."""
        self._started[ports["pid"]].send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End all, those too that do not end by themselves."""
        for process in self._started.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + REAL_STOP_S
        for pid, process in self._started.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                process.wait(60)


@pytest.fixture(scope="session")
def real_triton() -> Iterator[RealTritons]:
    """Start a real tritonserver on a repository; returns its ports. For tests marked `parity`."""
    tritons = RealTritons()
    try:
        yield tritons
    finally:
        tritons.close()


@pytest.fixture(scope="session")
def real_caches() -> Path:
    """The directory of the real server's response caches. For tests marked `parity`."""
    fetch = [sys.executable, str(ROOT / "benchmarks/real_triton.py"), "fetch"]
    found = subprocess.run(fetch, stdout=subprocess.PIPE, text=True, check=True)
    return Path(json.loads(found.stdout)["caches"])


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., CommandServer]]:
    """Serve in this process what `corectl serve` would with the given arguments, until the test is over."""
    with ExitStack() as stack:

        def start(*arguments: str) -> CommandServer:
            server = CommandServer(*arguments, log_file=tmp_path_factory.mktemp("served") / "log")
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def corectl() -> Iterator[Callable[..., ServerProcess]]:
    """Start `corectl serve` with the arguments of a `ServerProcess`; it ends with the test."""
    with ExitStack() as stack:

        def start(*arguments: str, **how: Any) -> ServerProcess:
            server = ServerProcess(*arguments, **how)
            stack.callback(server.close)
            return server

        yield start
