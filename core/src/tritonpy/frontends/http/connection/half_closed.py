"""Clients that will send nothing more: do they wait for the answer, or are they gone?

One that has shut down its sending side and one that has closed its socket look the same: the stream of bytes
ends. The first one waits for its answer, the request of the second should be cancelled. Only something sent
tells them apart, since the system of a client that is gone refuses it. HTTP has an answer that means nothing
and that every client must expect: 100 Continue.
"""

from __future__ import annotations

import asyncio
import select
import socket
from typing import Protocol

_FIRST_LOOK_S = 0.02
_LAST_LOOK_S = 1.0
_UNREAD_LOOK_S = 0.5


class Unread(Protocol):
    """A connection that is not read."""

    def descriptor(self) -> int:
        """Its number; -1 for none."""

    def on_end(self, is_gone: bool) -> None:
        """Its client sends nothing more; with `is_gone`, it takes nothing either."""


class UnreadWatch:
    """Looks for the end of connections that are not read, of which the loop hears nothing; on the loop only.

    Those have requests that wait for the one before, which may itself wait for long: in vain if the client is
    gone.
    """

    def __init__(self) -> None:
        self._unread: set[Unread] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Unread) -> None:
        """It is not read any more."""
        self._unread.add(connection)
        if self._timer is None and hasattr(select, "poll"):  # Windows has none
            self._timer = asyncio.get_running_loop().call_later(_UNREAD_LOOK_S, self.look)

    def discard(self, connection: Unread) -> None:
        """It is read again, or over."""
        self._unread.discard(connection)

    def look(self) -> None:
        """Tell the connections whose clients have ended them, and look again later if there are any left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        poll = select.poll()
        by_descriptor = {connection.descriptor(): connection for connection in self._unread}
        by_descriptor.pop(-1, None)
        for descriptor in by_descriptor:
            poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
        for descriptor, events in poll.poll(0):
            by_descriptor[descriptor].on_end(bool(events & (select.POLLERR | select.POLLHUP)))
        if self._unread:
            self._timer = asyncio.get_running_loop().call_later(_UNREAD_LOOK_S, self.look)


class HalfClosed:
    """Watches a connection whose client has ended its side, until it is told to stop.

    Args:
        transport: of the connection; aborted when the client turns out to be gone.
        may_probe: whether an interim answer may be sent: not to clients of HTTP/1.0, which know none.
    """

    __slots__ = ("_delay_s", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, may_probe: bool) -> None:
        self._transport = transport
        self._delay_s = _FIRST_LOOK_S
        if may_probe:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        # Nothing is read from such a connection, so the loop does not notice that it was reset.
        peer: socket.socket | None = self._transport.get_extra_info("socket")
        if peer is None or peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        self._delay_s = min(2 * self._delay_s, _LAST_LOOK_S)
        self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._look)
