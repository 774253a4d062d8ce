"""Servers and routers as processes of this machine, to be killed, stopped, cut off and started again."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_servers import free_port

CORECTL = (sys.executable, "-m", "tritonpy.cli.main")
READY_S = 90.0
_SERVICES = ("http", "grpc", "metrics")


class NotPermitted(Exception):
    """This machine does not let the benchmark do what it is asked to; the text says what."""


@dataclass
class Process:
    """`corectl` on ports of its own, in a process group of its own.

    Attributes:
        name: in tables and logs.
        command: what follows `corectl`, without addresses and ports.
        log: its standard error is appended here.
        host: the address that it listens on.
        ports: by service.
        prefix: a command that runs it elsewhere.
        environment: variables in addition to those of this process.
        replica_port: where a server tells routers how it is; 0 for nowhere.
    """

    name: str
    command: Sequence[str]
    log: Path
    host: str = "127.0.0.1"
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in _SERVICES})
    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    replica_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it may be ready later."""
        listen = [f"--{service}-port={port}" for service, port in self.ports.items()]
        listen += [f"--{service}-address={self.host}" for service in self.ports]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *CORECTL, *self.command, *listen],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        atexit.register(self.end)

    @property
    def pid(self) -> int:
        """Of the process at the top."""
        assert self.process is not None  # it was started
        return self.process.pid

    def signal(self, number: int, everything: bool = False) -> None:
        """Send a signal to it, or to its group: the processes of its models, too."""
        if everything:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Return its exit status."""
        assert self.process is not None  # it was started
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """Kill it and what it has started."""
        if self.process is None:
            return
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                break
        self.process.wait()
        atexit.unregister(self.end)

    @property
    def place(self) -> str:
        """As a line of a file of servers."""
        place = f"{self.name}={self.host}:{self.ports['http']}:{self.ports['grpc']}"
        return f"{place}:{self.replica_port}" if self.replica_port else place

    def get(self, path: str, body: bytes | None = None, timeout_s: float = 30.0) -> tuple[int, bytes]:
        """Status and body of a request; 0 if nobody answers."""
        url = f"http://{self.host}:{self.ports['http']}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=timeout_s) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def wait_ready(self, model: str) -> None:
        """Return when it has a model ready.

        Raises:
            SystemExit: it does not come to that; the text has the end of its log.
        """
        wait_until(
            lambda: self.get(f"/v2/models/{model}/ready", timeout_s=2.0)[0] == 200,
            lambda: f"{self.name} has no model '{model}':\n{self.log.read_text()[-2000:]}",
        )

    def metrics(self) -> str:
        """The page of metrics."""
        url = f"http://{self.host}:{self.ports['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
        return text


def wait_until(holds: Callable[[], Any], otherwise: Callable[[], str], limit_s: float = READY_S) -> None:
    """Return when something holds.

    Raises:
        SystemExit: it does not, in `limit_s`; with the text of `otherwise`.
    """
    end_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end_s:
            raise SystemExit(otherwise())
        time.sleep(0.05)


class Island:
    """A network of its own, whose only way out is a cable that can be taken down: needs root and `ip`.

    Args:
        number: of the network, 0 to 255.

    Raises:
        NotPermitted: this machine does not let us.
    """

    def __init__(self, number: int = 77) -> None:
        self._name = f"tritonpy-{os.getpid()}"
        self._cable = f"tpv{os.getpid() % 100_000}"
        self.host = f"10.231.{number}.2"
        atexit.register(self.remove)
        self._ip("netns", "add", self._name)
        self._ip("link", "add", self._cable, "type", "veth", "peer", "name", "inside", "netns", self._name)
        self._ip("addr", "add", f"10.231.{number}.1/30", "dev", self._cable)
        self._ip("link", "set", self._cable, "up")
        self._ip("-n", self._name, "addr", "add", f"{self.host}/30", "dev", "inside")
        for device in ("inside", "lo"):
            self._ip("-n", self._name, "link", "set", device, "up")

    @property
    def prefix(self) -> Sequence[str]:
        """What runs a command in there."""
        return ("ip", "netns", "exec", self._name)

    def cut(self) -> None:
        """Nothing comes or goes any more, and nobody is told."""
        # The inner end, so that the outer address stays and packets are sent to where nobody hears them.
        self._ip("-n", self._name, "link", "set", "inside", "down")

    def mend(self) -> None:
        """Everything comes and goes again."""
        self._ip("-n", self._name, "link", "set", "inside", "up")

    def remove(self) -> None:
        """Remove it."""
        for words in (("link", "del", self._cable), ("netns", "del", self._name)):
            subprocess.run(["ip", *words], capture_output=True, check=False)
        atexit.unregister(self.remove)

    @staticmethod
    def _ip(*words: str) -> None:
        try:
            done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        except OSError as error:
            raise NotPermitted(f"ip cannot be run: {error}") from None
        if done.returncode:
            raise NotPermitted(f"ip {' '.join(words)}: {done.stderr.strip()}")
