"""Servers on free ports of this machine: ours in this process, and a real one for what is said of both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tritonpy import logs
from tritonpy.cli.serve import WITHOUT_EFFECT, read_options
from tritonpy.cli.serve import serve as command
from tritonpy.frontends.http.listener import HttpListener
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.testing import until

OURS_AND_REAL = ["ours", pytest.param("real", marks=pytest.mark.parity)]
"""The kinds of servers, as parameters of a fixture or test that says the same of both."""

GRPC_TRANSPORTS = ["native", "grpcio"]
"""The transports of gRPC, as parameters of a fixture: what uses them runs on both.

All other tests run on the one that a server takes by itself.
"""

TRANSPORTS_AND_REAL = [*GRPC_TRANSPORTS, *OURS_AND_REAL[1:]]
"""Our server on each transport, and the real one."""


def local_options(*repositories: Path | str, **options: Any) -> ServerOptions:
    """Options of a server that nobody else can reach, on ports that the system chooses."""
    local = {f"{service}_address": "127.0.0.1" for service in ("http", "grpc", "metrics")}
    free = {f"{service}_port": 0 for service in ("http", "grpc", "metrics")}
    return ServerOptions(tuple(map(str, repositories)), **{**local, **free, **options})


def http_of(server: Server) -> HttpListener:
    """The HTTP port of a server that runs; to be touched on its loop."""
    listener: HttpListener = server.runtime.frontends.by_name["http"].state.listener
    return listener


@contextmanager
def serving(
    kind: str, request: pytest.FixtureRequest, repository: Path, *flags: str, **options: Any
) -> Iterator[dict[str, int]]:
    """Serve a repository: by ours until the block is left, or by a real one until the end of the run.

    Args:
        kind: `ours` or `real`.
        request: asks for the real server, where it is needed.
        repository: of the models.
        flags: of the real server.
        options: of ours.

    Yields:
        The ports by `http`, `grpc` and `metrics`, of those that are open.
    """
    if kind == "real":
        yield request.getfixturevalue("real_triton")(repository, *flags)
        return
    with Server(local_options(repository, **options)) as server:
        services = (name for name in ("http", "grpc", "metrics") if getattr(server.options, f"allow_{name}"))
        yield {name: getattr(server, f"{name}_port") for name in services}


def command_options(*arguments: str) -> ServerOptions:
    """What `corectl serve` makes of its arguments, on ports of this machine that the system chooses."""
    ports = [
        f"--{name}-{what}" for name in ("http", "grpc", "metrics") for what in ("address=127.0.0.1", "port=0")
    ]
    context = command.make_context("serve", [*arguments, *ports])
    others = {"show_config", "malloc", *(option.human_readable_name for option in WITHOUT_EFFECT)}
    return read_options(context, {key: value for key, value in context.params.items() if key not in others})


class CommandServer(Server):
    """What `corectl serve` serves and logs, in this process, for tests that need no process of its own.

    Args:
        arguments: of `corectl serve`, beside addresses and ports.
        log_file: where its log goes.
    """

    def __init__(self, *arguments: str, log_file: Path) -> None:
        options = replace(command_options(*arguments), log_file=str(log_file))
        super().__init__(options)
        self._log_file = log_file
        self._logs = logs.configure(options)
        try:
            self.start()
        except BaseException:
            self._logs.close()
            raise

    def stop(self) -> None:
        """End it as a signal does."""
        super().stop()
        self._logs.close()

    @property
    def log(self) -> str:
        """Everything that it has logged so far; its thread may be about to write some of that."""
        until(lambda: not self._logs._writer.held, "all lines are written")
        return self._log_file.read_text()

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Wait until a regular expression is found in the log; return the match."""
        found = until(lambda: re.search(pattern, self.log), lambda: f"{pattern!r} is in the log:\n{self.log}")
        assert found is not None
        return found

    @property
    def ports(self) -> dict[str, int]:
        """By service, as a `ServerProcess` has them."""
        ports = (self.http_port, self.grpc_port, self.metrics_port)
        return dict(zip(("HTTPService", "GRPCInferenceService", "Metrics Service"), ports, strict=True))
