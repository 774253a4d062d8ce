"""A worker's program on a thread of the server, where a debugger reaches it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from tritonpy.ipc.channel import WorkerChannel

_log = logging.getLogger("tritonpy.worker")

_LEAVE_BEHIND_S = 5.0

Serve = Callable[[WorkerChannel], None]


class WorkerThread:
    """Runs a worker's program until its channel closes; satisfies `Program`.

    Made and killed on the loop. A thread cannot be ended from outside: one that goes on computing is left
    behind when it should go.

    Args:
        name: the instance.
        serve: the program.
        channel, segments: its ends of the channel's two sockets; closed when it ends.

    Attributes:
        pid: of this process.
        ended: done when the program is over, or the thread is left behind.
    """

    def __init__(self, name: str, serve: Serve, channel: socket.socket, segments: socket.socket) -> None:
        self.pid = os.getpid()
        self.ended: Future[int] = Future()
        self._name = name
        self._serve = serve
        self._socket = channel
        self._channel = WorkerChannel(channel, segments)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def kill(self) -> None:
        """End it when it next reads or writes; it is left behind if it does not soon."""
        with suppress(OSError):  # closed by now
            self._socket.shutdown(socket.SHUT_RDWR)
        self._loop.call_later(_LEAVE_BEHIND_S, self._leave_behind)

    def _leave_behind(self) -> None:
        with suppress(InvalidStateError):  # it has ended
            self.ended.set_result(1)
            _log.warning("the thread of instance '%s' still executes and is left behind", self._name)

    def _run(self) -> None:
        try:
            self._serve(self._channel)
        except Exception:
            _log.exception("the thread of instance '%s' failed", self._name)
        finally:
            self._channel.close()
            with suppress(InvalidStateError):  # it was left behind
                self.ended.set_result(0)
