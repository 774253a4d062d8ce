"""A short-lived child process: what it reports and prints, until it ends or its time is over."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

PROGRAM = Path(__file__).with_name("child.py")

_KEPT_BYTES = 1 << 13  # the last ones that it prints
_LOOK_S = 0.02  # how often it is looked at where the system cannot tell of its end


@dataclass(frozen=True, slots=True)
class Ending:
    """The report, output and exit status of a child.

    Attributes:
        report: what it wrote to its report.
        output: the last of what it printed, on either stream.
        status: its exit code, or minus a signal's number; None for one whose time was over.
    """

    report: bytes
    output: bytes
    status: int | None


def run_child(arguments: Sequence[str], request: bytes, timeout_s: float) -> Ending:
    """Run `child.py` until it ends; afterwards nothing is left of it and its process group. Blocking.

    Args:
        arguments: for the program, after the descriptor of its report and the number of this process.
        request: what it reads from its standard input.
        timeout_s: it is killed then.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as stack:
        stdin = _memory(stack, request)
        report = _memory(stack)
        output, output_end = _pipe(stack)
        process = subprocess.Popen(
            [*_interpreter(), str(PROGRAM), str(report.fileno()), str(os.getpid()), *arguments],
            stdin=stdin,
            stdout=output_end,
            stderr=output_end,
            pass_fds=(report.fileno(),),
            start_new_session=True,  # keys pressed in the server's terminal are not meant for it
        )
        kept = bytearray()
        is_over = False
        try:
            output_end.close()
            is_over = _watch(process.pid, output, kept, time.monotonic() + timeout_s)
        finally:
            # Not reaped yet, so neither its number nor that of its group can be another's.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        report.seek(0)
        return Ending(report.read(), bytes(kept), status if is_over else None)


def _interpreter() -> list[str]:
    """The server's own, with the standard library only: the program needs no more, and starts quickly."""
    executable = sys.executable or str(Path(sys.exec_prefix) / "bin/python3")  # Python is a program's guest
    needs_variables = "PYTHONHOME" in os.environ and not sys.flags.ignore_environment
    return [executable, "-S", "-s", "-P", *([] if needs_variables else ["-E"])]


def _memory(stack: ExitStack, content: bytes = b"") -> FileIO:
    """A file that has no name and lies on no disk."""
    file = stack.enter_context(FileIO(os.memfd_create("tritonpy-probe"), "r+"))
    file.write(content)
    file.seek(0)
    return file


def _pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    """An end to read from, which does not block, and one to write to."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    return stack.enter_context(FileIO(read)), stack.enter_context(FileIO(write, "w"))


def _watch(pid: int, output: FileIO, kept: bytearray, deadline: float) -> bool:
    """Keep the last of what a child prints; whether it ended in time. It is not reaped yet."""
    with ExitStack() as stack:
        poll = select.poll()
        poll.register(output, select.POLLIN)
        end = _end_of(pid, stack)
        if end is not None:
            poll.register(end, select.POLLIN)
        while True:
            has_ended = _has_ended(pid)  # looked up first: what it prints is then all there to be read
            if not _read(output, kept):
                with suppress(KeyError):
                    poll.unregister(output)
            left_s = deadline - time.monotonic()
            if has_ended or left_s <= 0:
                return has_ended
            poll.poll((left_s if end is not None else min(left_s, _LOOK_S)) * 1000)


def _end_of(pid: int, stack: ExitStack) -> int | None:
    """A descriptor that can be read from when a process has ended; None where the system has none."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # older than Linux 5.3, or forbidden
        return None
    stack.callback(os.close, descriptor)
    return descriptor


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # the program that the server is part of reaps all its children
        return True


def _read(output: FileIO, kept: bytearray) -> bool:
    """True if there may be more to read."""
    for _ in range(64):  # one that prints without end does not keep us from looking at the time
        data = output.read(_KEPT_BYTES)
        if not data:
            return data is None
        kept += data
        del kept[:-_KEPT_BYTES]
    return True
