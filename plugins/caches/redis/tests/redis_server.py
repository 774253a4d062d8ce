"""A real Redis: the one that is installed, or Debian's packages unpacked in a cache; no root needed."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tritonpy_sdk.testing import DEADLINE_S, until

from .resp_server import hold_port

CACHE = Path(os.environ.get("REDIS_CACHE", Path(__file__).parents[4] / ".cache/redis"))
PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
_PROGRAM = CACHE / "unpacked/usr/bin/redis-server"
_LIBRARIES = CACHE / "unpacked/usr/lib"
_PAUSES_S = (3, 15)  # between the attempts to fetch the packages
_STARTS = 3


def fetch() -> str:
    """Make sure there is one; returns the program."""
    installed = shutil.which("redis-server")
    if installed:
        return installed
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        pytest.skip("there is no redis-server, and no apt-get to fetch it with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:  # several test processes may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _PROGRAM.exists():
            _download()
            unpacked = CACHE / "unpacked.new"
            shutil.rmtree(unpacked, ignore_errors=True)
            for package in CACHE.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
            unpacked.rename(CACHE / "unpacked")
    return str(_PROGRAM)


def _download() -> None:
    """Fetch the packages into the cache, with lists of our own where the machine has none, or old ones."""
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3"]
    if subprocess.run([*command, "download", *PACKAGES], cwd=CACHE, check=False).returncode == 0:
        return
    lists, archives = CACHE / "lists", CACHE / "archives"
    for directory in (lists / "partial", archives / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    for option in (f"Dir::State::Lists={lists}", f"Dir::Cache={archives}", "Debug::NoLocking=1"):
        command += ["-o", option]
    for pause_s in (*_PAUSES_S, None):  # `update` says that all is well where lists could not be had
        subprocess.run([*command, "update"], check=False)
        done = subprocess.run(
            [*command, "download", *PACKAGES], cwd=CACHE, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
        if pause_s is None:
            pytest.fail(f"{' '.join(PACKAGES)} cannot be fetched from Debian:\n{done.stdout}{done.stderr}")
        time.sleep(pause_s)


class PortTakenError(Exception):
    """Another program took the port before Redis could."""


class RedisServer:
    """One that keeps everything in its memory.

    Attributes:
        port: on 127.0.0.1.

    Args:
        directory: for its socket and log.
        options: of redis-server, as on its command line; `{port}` stands for the port.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        self._program = fetch()
        self._socket = directory / "redis.sock"
        self._directory = directory
        self._options = options
        self._held = ExitStack()
        for starts_left in reversed(range(_STARTS)):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self.port: int = probe.getsockname()[1]
            try:
                self._start()
                break
            except PortTakenError:
                if not starts_left:
                    raise

    def hang(self) -> None:
        """Take requests and answer none."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on."""
        self._process.send_signal(signal.SIGCONT)

    def die(self) -> None:
        """End without a word; nobody else gets the port."""
        self._process.kill()
        self._process.wait()
        self._held.enter_context(hold_port(self.port))

    def revive(self) -> None:
        """Begin again on the same port, with nothing kept."""
        with self._held:
            self._start()

    def ask(self, *words: str) -> str:
        """What Redis answers to a command, over its socket on this machine."""
        parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words)]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(str(self._socket))
            connection.sendall(b"".join(parts))
            return connection.recv(1_000_000).decode(errors="replace")

    def stop(self) -> None:
        """End it."""
        self.resume()
        self.die()
        self._held.close()

    def _start(self) -> None:
        libraries = [str(path) for path in (_LIBRARIES, *_LIBRARIES.glob("*-linux-gnu"))]
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir"]
        command += [str(self._directory), "--unixsocket", str(self._socket), "--logfile", "redis.log"]
        self._socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*command, *(option.format(port=self.port) for option in self._options)],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)},
        )
        until(self._is_there, f"Redis answers at {self.port}")

    def _is_there(self) -> bool:
        try:
            self.ask("PING")
        except OSError:
            log = self._directory / "redis.log"
            if self._process.poll() is not None:
                said = log.read_text() if log.exists() else "it said nothing"
                raise (PortTakenError if "Address already in use" in said else RuntimeError)(said) from None
            return False
        return True
