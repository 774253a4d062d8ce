"""Servers for the tests across packages: in this process, as `corectl serve`, and the real tritonserver."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tritonpy.options import ServerOptions
from tritonpy.server import Server

ROOT = Path(__file__).parent.parent

ServerFactory = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[ServerFactory]:
    """Start servers in this process on free ports; they stop when the test is over."""
    with ExitStack() as stack:

        def start(*repositories: Path, **options: object) -> Server:
            settings = ServerOptions(
                tuple(map(str, repositories)),
                http_address="127.0.0.1",
                grpc_address="127.0.0.1",
                metrics_address="127.0.0.1",
                http_port=0,
                grpc_port=0,
                metrics_port=0,
                **options,  # type: ignore[arg-type]
            )
            return stack.enter_context(Server(settings))

        yield start


@pytest.fixture(scope="session")
def real_triton() -> Iterator[Callable[[Path], dict[str, int]]]:
    """Start a real tritonserver on a repository; returns its ports. For tests marked `parity`."""
    with ExitStack() as stack:

        def start(repository: Path) -> dict[str, int]:
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
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

            def stop() -> None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)

            stack.callback(stop)
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "the real tritonserver did not start"
            ports: dict[str, int] = json.loads(line)
            return ports

        yield start
