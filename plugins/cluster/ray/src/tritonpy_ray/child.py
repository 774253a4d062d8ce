"""A server or router as the child process of an actor: started, watched by its pid, started again, ended."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tritonpy_ray import keeper
from tritonpy_ray.looks import Look

_log = logging.getLogger("tritonpy.ray")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
_KILL_AFTER_S = 10.0  # what a program may take beyond its own exit timeout
_LAST_LINES = 20
_LAST_LINES_S = 1.0
_FEW = 5

_SERVICES = {
    "HTTPService": "http",
    "GRPCInferenceService": "grpc",
    "Metrics Service": "metrics",
    "frontend 'replica'": "replica",
}
_SERVICE = re.compile(r"Started (\w+(?: (?:\w+|'\w+'))?) at [^\s\"]*:(\d+)")
_ERROR = re.compile(r'[EF]\d{4} |\{.*"level": ?"ERROR"|Error: ')
_ROUTES = re.compile(r"Routing: HTTP on port (\d+), gRPC on port (\d+), metrics on port (\d+)")


def server_ports(line: str) -> dict[str, int]:
    """The port that a line of the log of `corectl serve` tells, if it does."""
    found = _SERVICE.search(line)
    return {_SERVICES[found[1]]: int(found[2])} if found and found[1] in _SERVICES else {}


def router_ports(line: str) -> dict[str, int]:
    """The ports that a line of the log of `corectl route` tells, if it does."""
    found = _ROUTES.search(line)
    return dict(zip(("http", "grpc", "metrics"), map(int, found.groups()), strict=True)) if found else {}


def told_last(lines: Iterable[str]) -> str:
    """Why a program has ended, as its last lines say it: its last error, or all of them."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if _ERROR.match(line)]
    return errors[-1] if errors else "\n".join(said[-_FEW:]) or "it wrote nothing"


class Program(NamedTuple):
    """What a child runs.

    Attributes:
        arguments: of `corectl`.
        read_ports: finds ports in a line of its log.
        exit_timeout_s: how long it may take to end, by its own options.
        environment: of the process.
        more: asked before each start for further arguments; may raise OSError, for what keeps it from one.
        awaited: ports that it listens on when it is up.
    """

    arguments: Sequence[str]
    read_ports: Callable[[str], Mapping[str, int]]
    exit_timeout_s: float
    environment: Mapping[str, str]
    more: Callable[[], Sequence[str]] = tuple
    awaited: frozenset[str] = frozenset(("http", "grpc"))


class Child:
    """One program that is kept running; its methods may be called by any thread.

    Args:
        name: in the log.
        program: what runs.
        echo: writes a line of its log.
        first_pause_s: before it is started again, the first time.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        echo: Callable[[str], object] = sys.stderr.write,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._name = name
        self._program = program
        self._echo = echo
        self._first_pause_s = first_pause_s
        self._lock = threading.Lock()  # guards all below but the last two
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._ports: dict[str, int] = {}
        self._restart_count = 0
        self._failure = ""
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keeps {name}", daemon=True)

    def start(self) -> None:
        """Start it; returns before it listens."""
        self._thread.start()

    def look(self, host: str) -> Look:
        """How it is now.

        Args:
            host: the address of this node.
        """
        with self._lock:
            is_up = self._program.awaited <= self._ports.keys()
            return Look(
                host=host,
                pid=self._pid,
                state="up" if is_up else "starting" if self._process is not None else "down",
                ports=dict(self._ports),
                restart_count=self._restart_count,
                failure=self._failure,
            )

    def stop(self) -> None:
        """End it, which answers what it has accepted; returns when it has ended."""
        self._is_over.set()
        self._send(signal.SIGTERM)
        if self._thread.is_alive():
            self._thread.join(self._limit_s + _KILL_AFTER_S)
        if self._thread.is_alive():
            _log.error("'%s' does not end and is killed", self._name)
            self._kill()
            self._thread.join()

    @property
    def _limit_s(self) -> float:
        return self._program.exit_timeout_s + _KILL_AFTER_S

    def _keep(self) -> None:
        pause_s = self._first_pause_s
        while not self._is_over.is_set():
            try:
                self._run()
            except OSError as exc:  # no process or no memory is left, or a port is taken
                self._read(f"it cannot be started: {exc}\n")
            with self._lock:
                was_up = bool(self._ports)
                self._failure = "" if was_up else told_last(self._lines)
                self._process, self._pid = None, None
                self._ports.clear()
                if not self._is_over.is_set():
                    self._restart_count += 1
            pause_s = self._first_pause_s if was_up else min(2 * pause_s, LONGEST_PAUSE_S)
            self._is_over.wait(pause_s)

    def _run(self) -> None:
        """Run it until it ends, which its pid tells: others may hold its standard error open for longer."""
        with self._lock:
            self._lines.clear()
        command = [sys.executable, "-I", str(Path(keeper.__file__)), f"{self._limit_s:g}"]
        command += [sys.executable, "-m", "tritonpy.cli.main", *self._program.arguments]
        command += self._program.more()
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closed by the end of this process, too
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(self._program.environment),
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=self._read_all, args=(process.stderr,), daemon=True)
        reader.start()
        with process.stdin, process.stdout:
            pid = process.stdout.readline().strip()
            with self._lock:
                self._process = process
                self._pid = int(pid) if pid.isdigit() else None
            if self._is_over.is_set():  # told to end before there was a process to tell
                self._send(signal.SIGTERM)
            status = process.wait()
        reader.join(_LAST_LINES_S)
        if not self._is_over.is_set():
            _log.warning("'%s' (pid %s) has ended with status %d", self._name, self._pid, status)

    def _read_all(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._read(line.decode("utf-8", "replace"))

    def _read(self, line: str) -> None:
        self._echo(line)
        with self._lock:
            self._lines.append(line)
            if len(self._ports) < len(_SERVICES):
                self._ports.update(self._program.read_ports(line))
                if self._program.awaited <= self._ports.keys():
                    self._failure = ""

    def _send(self, number: int) -> None:
        with self._lock:
            if self._process is not None:
                self._process.send_signal(number)

    def _kill(self) -> None:
        with self._lock:
            if self._process is None:
                return
            if sys.platform == "win32":
                self._process.kill()
            else:  # what it has started, too
                os.killpg(self._process.pid, signal.SIGKILL)
