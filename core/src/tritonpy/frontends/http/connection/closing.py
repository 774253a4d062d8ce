"""Closing of connections: those that a client has ended on its side, and lingering closes of the server.

A client that has shut down its sending side and one that has closed its socket look the same: the stream of
bytes ends. The first one waits for its answer, the request of the second should be cancelled. Only something
sent tells them apart, since the system of a client that is gone refuses it. HTTP has an answer that means
nothing and that every client must expect: 100 Continue.

A client whose request is refused may still be sending it, and most read only when they have sent everything.
Closed meanwhile, the connection would be reset, and the answer that says why lost with it. So what still
comes is read and forgotten until nothing has come for a while, within a limit: a lingering close.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

from tritonpy.frontends.sockets import has_unread

QUIET_S = 2.0
MOST_LOOKS = 15
_FIRST_LOOK_S = 0.02
_LAST_LOOK_S = 1.0
_UNREAD_LOOK_S = 0.5


class UnreadWatch:
    """Looks for the end of connections that are not read, which the loop does not report; on the loop only.

    Those have requests that wait for the one before, which may itself wait for long: in vain if the client is
    gone.
    """

    def __init__(self) -> None:
        self._unread: dict[asyncio.Transport, Callable[[bool], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transport: asyncio.Transport, on_end: Callable[[bool], None]) -> None:
        """Start watching a connection that is not read any more.

        Args:
            transport: of the connection.
            on_end: called, again and again, when its client sends nothing more; with True, it takes nothing
                either.
        """
        self._unread[transport] = on_end
        if self._timer is None and hasattr(select, "poll"):  # Windows has none
            self._timer = asyncio.get_running_loop().call_later(_UNREAD_LOOK_S, self._look)

    def discard(self, transport: asyncio.Transport) -> None:
        """Stop watching a connection that is read again, or over."""
        self._unread.pop(transport, None)

    def _look(self) -> None:
        poll = select.poll()
        by_descriptor: dict[int, Callable[[bool], None]] = {}
        for transport, on_end in self._unread.items():
            end = None if transport.is_closing() else transport.get_extra_info("socket")
            if end is not None:
                by_descriptor[end.fileno()] = on_end
                poll.register(end.fileno(), getattr(select, "POLLRDHUP", 0))
        for descriptor, events in poll.poll(0):
            by_descriptor[descriptor](bool(events & (select.POLLERR | select.POLLHUP)))
        self._timer = None
        if self._unread:
            self._timer = asyncio.get_running_loop().call_later(_UNREAD_LOOK_S, self._look)


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
        """Stop watching."""
        self._timer.cancel()

    def _look(self) -> None:
        # Nothing is read from such a connection, so the loop does not notice that it was reset.
        peer: socket.socket | None = self._transport.get_extra_info("socket")
        if peer is None or peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        self._delay_s = min(2 * self._delay_s, _LAST_LOOK_S)
        self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._look)


class LingeringClose:
    """Closes a connection on which nothing more is answered; on the loop only.

    Args:
        transport: of the connection; its side is ended where the protocol can say that.

    Attributes:
        has_sent: the client has sent something since the last look; set by who reads it.
    """

    __slots__ = ("_looks", "_transport", "has_sent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._looks = 0
        self.has_sent = False
        if transport.can_write_eof():
            transport.write_eof()
        self._wait()

    def hurry(self) -> None:
        """Close at the next look, also if the client still sends."""
        self._looks = MOST_LOOKS

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(QUIET_S, self._look)

    def _look(self) -> None:
        self._looks += 1
        # A loop that was kept from reading comes here first.
        if self._looks < MOST_LOOKS and (self.has_sent or has_unread(self._transport)):
            self.has_sent = False
            self._wait()
        else:
            self._transport.close()
