"""The process of an agent, as the server sees it: its calls, and its end."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from tritonpy.plugin import ErrorCode, Internal, JsonObject, TritonError

from tritonpy_abi.agents.messages import Messages
from tritonpy_abi.agents.output import AgentOutput, log_levels

_log = logging.getLogger("tritonpy.abi")

_END_S = 5.0
"""How long a process may take to end once it was told to."""


class AgentProcess:
    """A process with one agent. All methods block; any thread may call them.

    Args:
        path: of the library.

    Raises:
        Internal: no process can be started.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # guards the next four
        self._models: dict[int, str] = {}
        self._waiting: dict[int, _Call] = {}
        self._end: str | None = None  # what became of it
        self._is_told_to_end = False
        self._gone = threading.Event()
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                here, there = socket.socketpair()
                ours.callback(here.close)
                theirs.callback(there.close)
                streams = {}
                for level in (logging.INFO, logging.WARNING):
                    read, write = os.pipe()
                    ours.callback(os.close, read)
                    theirs.callback(os.close, write)
                    streams[read] = (write, level)
                stdout, stderr = (write for write, _ in streams.values())
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tritonpy_abi.agents.child", str(path), str(there.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=(there.fileno(),),
                    start_new_session=True,  # keys pressed in the server's terminal are not meant for it
                )
            except OSError as exc:
                raise Internal(f"cannot start a process for repository agent library {path}: {exc}") from exc
            ours.pop_all()  # it runs: what is ours is closed when it ends
        self._messages = Messages(here)
        self._output = AgentOutput(
            path, self._process.pid, {read: level for read, (_, level) in streams.items()}
        )
        self._reader = threading.Thread(target=self._receive, name=f"answers of {path.name}", daemon=True)
        self._reader.start()
        threading.Thread(target=self._watch, name=f"end of {path.name}", daemon=True).start()

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, by whatever cause."""
        if self._gone.is_set():
            return True
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def call(self, name: str, what: str, **arguments: object) -> JsonObject:
        """Call one of the agent's functions, and wait for as long as it takes.

        Args:
            name: as `child.py` knows it.
            what: the same for messages.
            arguments: what the call needs.

        Raises:
            TritonError: the agent's own; or the process ended, and how.
        """
        call = _Call(what)
        number = next(self._numbers)
        with self._lock:
            if self._end is not None:
                raise Internal(self._end)
            self._waiting[number] = call
        with suppress(OSError):  # it is about to end, and that ends the call
            self._messages.send({"call": name, "number": number, "log_levels": log_levels(), **arguments})
        reply = call.outcome.get()
        if error := reply.get("error"):
            raise TritonError(error[1], ErrorCode(error[0]))
        return reply

    def note(self, number: int, name: str | None) -> None:
        """Note the name of a model that the agent has let through, or None when that is gone."""
        with self._lock:
            if name is not None:
                self._models[number] = name
            else:
                self._models.pop(number, None)

    def end(self) -> None:
        """Have the process end, and wait for it; one that does not is killed."""
        with self._lock:
            self._is_told_to_end = True
        with suppress(OSError):
            self._messages.send({"call": "end"})
        if not self._gone.wait(_END_S):
            _log.warning("the process of %s does not end by itself in %g s; it is killed", self.path, _END_S)
            self._process.kill()
            self._gone.wait()

    def _receive(self) -> None:
        while (message := self._messages.receive()) is not None:
            with self._lock:
                call = self._waiting.pop(message["number"])
            call.outcome.put(message)

    def _watch(self) -> None:
        with suppress(ChildProcessError):  # the program that the server is part of reaps all its children
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            # Not reaped yet, so its number is nobody else's. What it has started ends with it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._messages.end()  # also where something that the agent has started holds the other end
        self._reader.join()
        self._messages.close()
        self._output.finish()
        with self._lock:
            waiting = list(self._waiting.values())
            self._waiting.clear()
            where = f" in {' and '.join(call.what for call in waiting)}" if waiting else ""
            self._end = f"the process of repository agent library {self.path} {_how(status)}{where}"
            is_expected = self._is_told_to_end and status == 0
            names = sorted(set(self._models.values()))
        self._gone.set()
        for call in waiting:
            call.outcome.put({"error": [int(ErrorCode.INTERNAL), self._end]})
        if names or not (is_expected or waiting):
            rest = f"; it will not hear what becomes of models that it has let through: {', '.join(names)}"
            _log.error("%s%s", self._end, rest if names else "")


class _Call:
    """One that is under way."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.outcome = queue.SimpleQueue[JsonObject]()


def _how(status: int) -> str:
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"was killed by signal {-status}"
