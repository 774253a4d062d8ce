"""The programs of processes that the server starts: their start, and what is said of their end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from tritonpy.devices.binding import bind
from tritonpy.devices.host_policy import HostPolicy
from tritonpy.own_thread import on_own_thread


class Program(Protocol):
    """What runs the worker's program: a process, or a thread of this one."""

    @property
    def pid(self) -> int:
        """The process it runs in."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns its exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """


async def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    outputs: Sequence[int],
    policy: HostPolicy | None = None,
) -> subprocess.Popen[bytes]:
    """Exec a program without stopping the loop; cancelled, it leaves no process behind.

    The thread that makes the process stays for as long as that lives: a process that asks to be killed with
    its parent (`WorkerChannel.exit_with_server`) is killed at the end of the thread that it was made by.
    """

    def start() -> subprocess.Popen[bytes]:
        if policy is not None:
            bind(policy)
        return subprocess.Popen(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            pass_fds=descriptors,
        )

    spawning = asyncio.ensure_future(on_own_thread(start, "parent", _stay))
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        process = await spawning
        process.kill()
        await on_own_thread(process.wait, "reaper")
        raise


def _stay(process: subprocess.Popen[bytes]) -> None:
    """Return when a process has ended, and leave its status to those who reap it."""
    with suppress(ChildProcessError):  # they have been quicker
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def how_it_ended(status: int) -> str:
    """What became of a process, to go on after its name."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "an unknown signal"
    return f"was killed by signal {-status} ({name})"
