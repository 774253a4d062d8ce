"""A child process: started by exec, killed, reaped, and what is said of its end.

The thread that makes the process stays for as long as that lives, and reaps it. A child may ask to be killed
with its parent (`WorkerChannel.exit_with_server`), and to the system the parent is the thread that made it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress


class ChildGone(Exception):
    """The child ended while something was expected of it; the text says how."""


class ChildProcess:
    """A process that this one starts; from any thread.

    Args:
        command: the program and its arguments.
        environment: its variables; None for those of this process.
        descriptors: what it inherits beside its three standard descriptors; everything else is closed.
        has_pipes: read its standard output and error through `outputs`; else it has no standard output and
            shares our standard error.
        has_session: it gets a session of its own: keys pressed in our terminal are not meant for it, and what
            it has started ends with it.
        prepare: called on the thread that makes it, just before.
        name: of that thread.

    Attributes:
        started: done when the process runs; or the `OSError`, or the exception of `prepare`, that kept it.
        ended: the exit code, or minus the number of the signal that killed it, once it has been reaped.
        pid: its number; 0 before it has started.
        outputs: descriptors to read its standard output and standard error from, with `has_pipes`; once it
            has started, the caller has to close them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        has_pipes: bool = False,
        has_session: bool = False,
        prepare: Callable[[], None] | None = None,
        name: str = "parent",
    ) -> None:
        self._command = list(command)
        self._environment = environment
        self._descriptors = tuple(descriptors)
        self._has_pipes = has_pipes
        self._has_session = has_session
        self._prepare = prepare
        self._lock = threading.Lock()  # guards the next one, and the process's number
        self._is_reaped = False
        self.started: Future[None] = Future()
        self.ended: Future[int] = Future()
        self.pid = 0
        self.outputs: list[int] = []
        threading.Thread(target=self._live, name=name, daemon=True).start()

    @property
    def is_gone(self) -> bool:
        """True once it has ended, reaped or not."""
        if self.ended.done():
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def kill(self) -> None:
        """Kill it, or with a session all that belongs to it."""
        with self._lock:
            if self.pid and not self._is_reaped:  # until then no other process can have its number
                with suppress(ProcessLookupError, PermissionError):
                    (os.killpg if self._has_session else os.kill)(self.pid, signal.SIGKILL)

    def _live(self) -> None:
        try:
            process = self._start()
        except Exception as exc:
            self.started.set_exception(exc)
            return
        self.started.set_result(None)
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # the program that we are part of reaps all its children
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS: for an instant its number may be another's
            process.wait()
        if self._has_session:
            self.kill()  # what it has started
        with self._lock:
            status = process.wait()
            self._is_reaped = True
        self.ended.set_result(status)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._prepare is not None:
            self._prepare()
        stdout: int = subprocess.DEVNULL
        stderr: int | None = None
        with ExitStack() as ours, ExitStack() as theirs:
            if self._has_pipes:
                stdout, stderr = (self._pipe(ours, theirs) for _ in range(2))
            process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=self._descriptors,
                start_new_session=self._has_session,
            )
            ours.pop_all()
        self.pid = process.pid
        return process

    def _pipe(self, ours: ExitStack, theirs: ExitStack) -> int:
        read, write = os.pipe()
        ours.callback(os.close, read)
        theirs.callback(os.close, write)
        self.outputs.append(read)
        return write


def describe_end(status: int) -> str:
    """The end of a process in words, to follow its name in a message."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "an unknown signal"
    return f"was killed by signal {-status} ({name})"
