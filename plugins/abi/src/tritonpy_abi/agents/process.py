"""The process of an agent, as the server sees it: its calls, and its end."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path

from tritonpy.abi_host import ChildProcess, describe_end
from tritonpy.plugin import Internal, JsonObject, TritonError

from tritonpy_abi.agents import metrics
from tritonpy_abi.agents.messages import BadMessage, Messages
from tritonpy_abi.agents.output import AgentOutput
from tritonpy_abi.metrics import families_of
from tritonpy_abi.serving import connect

_log = logging.getLogger("tritonpy.abi")

_PROGRAM = "tritonpy_abi.agents.child"

_END_S = 5.0
"""How long a process may take to end once it was told to."""


class ProcessGone(Internal):
    """The process has ended, and its calls with it.

    Args:
        message: how, and in which calls.
        is_killed: by SIGKILL, which is nothing that an agent does itself.
    """

    def __init__(self, message: str, is_killed: bool) -> None:
        super().__init__(message)
        self.is_killed = is_killed


class AgentProcess:
    """A process with one agent. All methods block; any thread may call them.

    Args:
        path: of the library.

    Raises:
        TritonError: no process can be started; or see `connect`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # guards the next three
        self._models: dict[int, str] = {}
        self._waiting: dict[int, _Call] = {}
        self._end: tuple[str, bool] | None = None  # what became of it: see `ProcessGone`
        self._is_told_to_end = False
        self._is_killed = False
        self._gone = threading.Event()
        self._log = connect()
        with ExitStack() as ours:
            try:
                here, there = socket.socketpair()
                ours.callback(here.close)
                ended = os.eventfd(0, os.EFD_CLOEXEC)
                ours.callback(os.close, ended)
                with there:
                    self._process = self._start(there.fileno())
            except OSError as exc:
                raise Internal(f"cannot start a process for repository agent library {path}: {exc}") from exc
            ours.pop_all()  # it runs: what is ours is closed when it ends
        self._messages = Messages(here)
        levels = dict(zip(self._process.outputs, (logging.INFO, logging.WARNING), strict=True))
        self._output = AgentOutput(path, self._process.pid, levels, ended, self._log)
        self._reader = threading.Thread(target=self._receive, name=f"answers of {path.name}", daemon=True)
        self._reader.start()
        self._process.ended.add_done_callback(self._settle_end)

    @property
    def is_gone(self) -> bool:
        """True if the process has ended, for any reason."""
        return self._gone.is_set() or self._process.is_gone

    def call(self, name: str, where: str, model: int | None = None, **arguments: object) -> JsonObject:
        """Call one of the agent's functions, and wait for as long as it takes.

        Args:
            name: as `child.py` knows it.
            where: an agent is that ends in this call, for messages.
            model: the number of the model that it is about.
            arguments: what the call needs.

        Raises:
            ProcessGone: the process ended, now or before; says how.
            TritonError: the agent's own.
        """
        call = _Call(where, model)
        number = next(self._numbers)
        with self._lock:
            if self._end is not None:
                raise ProcessGone(*self._end)
            self._waiting[number] = call
        self._log.refresh()
        with suppress(OSError):  # it is about to end, and that ends the call
            self._messages.send({"call": name, "number": number, "model": model, **arguments})
        reply = call.outcome.get()
        if isinstance(reply, ProcessGone):
            raise reply
        if error := reply.get("error"):
            raise TritonError.with_code(*error)
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
        self._is_told_to_end = True
        with suppress(OSError):
            self._messages.send({"call": "end"})
        # One that has ended and is not gone has its last lines written.
        if not (self._gone.wait(_END_S) or self._process.ended.done()):
            _log.warning("the process of %s does not end by itself in %g s; it is killed", self.path, _END_S)
            self._is_killed = True
            self._process.kill()
        self._gone.wait()

    def _start(self, messages: int) -> ChildProcess:
        descriptors = (messages, self._log.levels_descriptor)
        process = ChildProcess(
            [sys.executable, "-P", "-m", _PROGRAM, str(self.path), *map(str, descriptors)],
            descriptors=descriptors,
            has_pipes=True,
            has_session=True,
            name=f"end of {self.path.name}",
        )
        process.started.result()
        return process

    def _receive(self) -> None:
        try:
            while (message := self._messages.receive()) is not None:
                self._settle(message)
        except BadMessage as exc:
            _log.error(
                "repository agent library %s has written into the connection between its process and the "
                "server (%s); the process is killed",
                self.path,
                exc,
            )
        if not self._is_told_to_end:  # it has closed its end, or sent what cannot be understood
            self._process.kill()

    def _settle(self, message: JsonObject) -> None:
        number = message.get("number")
        try:
            families = list(families_of(message.get("metrics", "[]")))
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as exc:
            raise BadMessage(f"metrics that are none, {exc!r}") from exc
        with self._lock:
            call = self._waiting.pop(number, None) if isinstance(number, int) else None
        if call is None:
            raise BadMessage("an answer that nobody waits for")
        metrics.show(self._process.pid, families)
        call.outcome.put(message)

    def _settle_end(self, ended: Future[int]) -> None:
        status = ended.result()
        self._messages.end()  # also where something that the agent has started holds the other end
        self._reader.join()
        self._messages.close()
        metrics.forget(self._process.pid)
        self._output.finish()
        with self._lock:
            waiting = list(self._waiting.values())
            self._waiting.clear()
            message = f"the process of repository agent library {self.path} {describe_end(status)}"
            if waiting:
                message += " " + " and ".join(call.where for call in waiting)
            self._end = message, status == -signal.SIGKILL
            is_expected = self._is_killed or (self._is_told_to_end and status == 0)
            told = {call.model for call in waiting}
            names = sorted({name for number, name in self._models.items() if number not in told})
        # First: the waiter for the end may close the log next.
        if names:
            rest = f"it will not hear what becomes of models that it has let through: {', '.join(names)}"
            _log.error("%s; %s", message, rest)
        elif not (is_expected or waiting):
            _log.error("%s", message)
        self._gone.set()
        for call in waiting:
            call.outcome.put(ProcessGone(*self._end))


class _Call:
    """One that is under way."""

    def __init__(self, where: str, model: int | None) -> None:
        self.where = where
        self.model = model
        self.outcome = queue.SimpleQueue[JsonObject | ProcessGone]()
