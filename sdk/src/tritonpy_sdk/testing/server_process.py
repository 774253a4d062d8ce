"""A server in a process of its own, for tests of what clients and operators see."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tritonpy_sdk.testing.patience import DEADLINE_S, until

_STARTED = re.compile(r"Started (.+) at 127\.0\.0\.1:(\d+)\D")
_SERVICES = ("http", "grpc", "metrics")


class ServerProcess:
    """A `corectl serve` on free ports of this machine; use it as a context manager, or `close` it.

    Attributes:
        process: the server.
        ports: by service, as its log names them: `HTTPService`, `GRPCInferenceService`, `Metrics Service`.

    Args:
        arguments: of `corectl serve`, beside addresses and ports.
        program: another environment's `corectl`.
        environment: its environment variables, in place of this process's.
        directory: where it runs.
        log_file: what it writes is appended there, where it stays; without it, only `log` has it.
        own_group: make it the leader of a process group of its own.
        awaited: how many of its services have to listen before it counts as started: fewer than three where
            the arguments turn some off, none for a start that fails.

    Raises:
        AssertionError: it ended before it had started; the message has its log.
    """

    def __init__(
        self,
        *arguments: str | Path,
        program: Path | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        log_file: Path | None = None,
        own_group: bool = False,
        awaited: int = len(_SERVICES),
    ) -> None:
        command = [str(program or Path(sys.executable).with_name("corectl")), "serve", *map(str, arguments)]
        for service in _SERVICES:
            command += [f"--{service}-address=127.0.0.1", f"--{service}-port=0"]
        self.ports: dict[str, int] = {}
        self._awaited = awaited
        # `close` closes it.
        self._log = log_file.open("ab+") if log_file else tempfile.TemporaryFile()  # noqa: SIM115
        self._log_begin = os.fstat(self._log.fileno()).st_size
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            cwd=directory,
            start_new_session=own_group,
        )
        # However this process ends, its end of the pipe closes, and the guard kills the server then.
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read _; kill -9 {self.process.pid}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until(self._has_started, lambda: f"the server has started:\n{self.log}")
        except BaseException:
            self.close()
            raise

    def _has_started(self) -> bool:
        has_ended = self.process.poll() is not None
        self.ports = {service: int(port) for service, port in _STARTED.findall(self.log)}
        assert not (has_ended and self._awaited), f"it ended with {self.process.returncode}:\n{self.log}"
        return len(self.ports) >= self._awaited

    @property
    def http_port(self) -> int:
        """The port of HTTP."""
        return self.ports["HTTPService"]

    @property
    def grpc_port(self) -> int:
        """The port of gRPC."""
        return self.ports["GRPCInferenceService"]

    @property
    def metrics_port(self) -> int:
        """The port of metrics."""
        return self.ports["Metrics Service"]

    @property
    def log(self) -> str:
        """Everything that it and its children have written so far, to standard output as well."""
        if self._log.closed:
            return self._last_log
        size = os.fstat(self._log.fileno()).st_size - self._log_begin
        # The offset of the file is the server's, too: it must stay where it is.
        return os.pread(self._log.fileno(), size, self._log_begin).decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """The lines of the log, with their ends."""
        return self.log.splitlines(keepends=True)

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Wait until a regular expression is found in the log; return the match."""
        found = until(lambda: re.search(pattern, self.log), lambda: f"{pattern!r} is in the log:\n{self.log}")
        assert found is not None
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end.

        Returns:
            The exit status.
        """
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended by itself; return the exit status."""
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        """Kill it, unless it has ended. Its log stays."""
        if self._guard.stdin is not None:
            self._guard.kill()
            self._guard.wait()
            self._guard.stdin.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self._log.closed:
            self._last_log = self.log
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self.process.poll() is None:
                self.stop()
        finally:
            self.close()
