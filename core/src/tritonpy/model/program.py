"""The programs of processes that the server starts: their start, and what is said of their end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from tritonpy.devices.binding import run_under
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
    """Exec a program without stopping the loop; cancelled, it leaves no process behind."""
    spawning = asyncio.ensure_future(
        run_under(
            policy,
            subprocess.Popen,
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            pass_fds=descriptors,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        process = await spawning
        process.kill()
        await on_own_thread(process.wait, "reaper")
        raise


def how_it_ended(status: int) -> str:
    """What became of a process, to go on after its name."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "an unknown signal"
    return f"was killed by signal {-status} ({name})"
