"""A worker's program on a thread of the server, where a debugger reaches it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from tritonpy.ipc.channel import WorkerChannel

_log = logging.getLogger("tritonpy.worker")

_LEAVE_BEHIND_S = 5.0

Serve = Callable[[WorkerChannel], None]


class WorkerThread:
    """Runs a worker's program until its channel closes; satisfies `Program`.

    A thread cannot be ended from outside: one that computes for ever is left behind when it should go.

    Args:
        name: the instance.
        serve: the program.
        channel, segments: its ends of the channel's two sockets; closed when it ends.
    """

    def __init__(self, name: str, serve: Serve, channel: socket.socket, segments: socket.socket) -> None:
        self._name = name
        self._serve = serve
        self._socket = channel
        self._channel = WorkerChannel(channel, segments)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """See `Program`."""
        return os.getpid()

    def kill(self) -> None:
        """See `Program`; it ends when it next reads or writes."""
        with suppress(OSError):  # closed by now
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self, timeout: float | None = None) -> int:
        """See `Program`."""
        self._thread.join(_LEAVE_BEHIND_S if timeout is None else timeout)
        if not self._thread.is_alive():
            return 0
        if timeout is not None:
            raise subprocess.TimeoutExpired(self._name, timeout)
        _log.warning("the thread of instance '%s' still executes and is left behind", self._name)
        return 1

    def _run(self) -> None:
        try:
            self._serve(self._channel)
        except Exception:
            _log.exception("the thread of instance '%s' failed", self._name)
        finally:
            self._channel.close()
