"""A port that listens: keeps track of its connections, sweeps stalled ones, drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

from tritonpy.admission import Admission
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.connection.access_log import AccessLog
from tritonpy.frontends.http.connection.answering import Handler
from tritonpy.frontends.http.connection.eviction import QuietOrder
from tritonpy.frontends.http.connection.protocol import HttpProtocol, Port
from tritonpy.frontends.http.connection.stalled_clients import Sweeper
from tritonpy.frontends.reserve import Reserve
from tritonpy.frontends.sockets import accept_waiting, listening_sockets

_BACKLOG = 1024
_GOODBYE_S = 2.0  # for a client to answer the end of TLS, which few do
_HANDSHAKE_S = 1.0  # of TLS, for the same
_FIRST_BYTES_S = 0.05  # for the request of a connection that was waiting when the server stopped


class HttpListener:
    """HTTP/1.1 on one address; on the loop only.

    Args:
        handler: answers requests.
        admission: counts the bytes of requests that are held.
        limit: connections at once; one more ends the quietest one.
        json_limit: the largest body that is not binary; 0 where no request has a body.
        scratch_byte_size: of the buffer for small reads.
        when_crowded: answers those that come when all connections are busy, of which a few more are taken;
            None ends the oldest connection instead.
        idle_timeout_s: how long a client may ask nothing; 0 for no limit.
        tls: encrypts; None does not.
        forwarding: which headers are kept as they were written; None for none.

    Attributes:
        connections: those that are open, in the order in which they came.
        sweeper: ends the stalled ones.
    """

    def __init__(
        self,
        handler: Handler,
        admission: Admission,
        limit: int,
        *,
        json_limit: int,
        scratch_byte_size: int,
        when_crowded: Handler | None = None,
        idle_timeout_s: float = 0,
        tls: ssl.SSLContext | None = None,
        forwarding: HeaderForwarding | None = None,
    ) -> None:
        self._handler = handler
        self._admission = admission
        self._limit = limit
        self._json_limit = json_limit
        self._scratch_byte_size = scratch_byte_size
        self._when_crowded = when_crowded
        self._tls = tls
        self._forwarding = forwarding
        self.connections: dict[HttpProtocol, None] = {}
        self._quiet_order = QuietOrder[HttpProtocol]()
        self._reserve = Reserve[HttpProtocol]()
        self._closed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._listening: list[socket.socket] = []
        self._connection: Callable[[], HttpProtocol] | None = None
        self.sweeper = Sweeper(self.connections, self._quiet_order, idle_timeout_s)

    async def start(
        self, address: str, port: int, reuse_port: bool = False, access_log: AccessLog | None = None
    ) -> int:
        """Listen, and return the port, which the system chose if `port` is 0.

        Args:
            address: see `sockets.listening_sockets`.
            port: likewise.
            reuse_port: let other servers that say so too listen on the same port.
            access_log: where answers are noted; None for nowhere.

        Raises:
            InvalidArg: nobody knows the address.
            Unavailable: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        # One read buffer serves all connections where a read is complete before the next one begins, as in
        # uvloop and the selector loops; Windows' proactor reads into buffers in the background.
        shares_scratch = type(loop).__name__ != "ProactorEventLoop"
        shared = Port(
            self._handler,
            self._admission,
            self._json_limit,
            self._scratch(),
            self._opened,
            self._lost,
            self._forwarding,
            access_log,
            is_tls=self._tls is not None,
            quiet_order=self._quiet_order,
        )

        def connection() -> HttpProtocol:
            return HttpProtocol(shared if shares_scratch else replace(shared, scratch=self._scratch()))

        listening = await listening_sockets(address, port, reuse_port)
        bound: int = listening[0].getsockname()[1]
        self._listening, self._connection = listening, connection
        for listener in listening:
            server = await loop.create_server(
                connection,
                sock=listener,
                backlog=_BACKLOG,
                ssl=self._tls,
                ssl_shutdown_timeout=_GOODBYE_S if self._tls is not None else None,
            )
            self._servers.append(server)
        self.sweeper.start()
        return bound

    async def stop_accepting(self) -> None:
        """Close the listening socket and every connection that has nothing under way.

        Clients that the system has connected, and the loop has not accepted yet, may have sent a request
        already. They are accepted and answered: the end of the listening socket would reset them.
        """
        self.sweeper.stop()
        newcomers = accept_waiting(self._listening, _BACKLOG)
        self._listening.clear()
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self.connections):
            connection.drain()
        if newcomers and self._connection is not None:
            loop = asyncio.get_running_loop()
            accepting = (self._accept(loop, self._connection, newcomer) for newcomer in newcomers)
            accepted = [each for each in await asyncio.gather(*accepting) if each is not None]
            await asyncio.sleep(_FIRST_BYTES_S)
            for connection in accepted:
                connection.drain()

    async def stop(self, timeout_s: float) -> None:
        """Wait until answers on their way have left, then drop the connections that are left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.connections:
                    self._closed.clear()
                    await self._closed.wait()
        for connection in list(self.connections):
            connection.abort()

    async def _accept(
        self, loop: asyncio.AbstractEventLoop, connection: Callable[[], HttpProtocol], newcomer: socket.socket
    ) -> HttpProtocol | None:
        """Serve a connection that was waiting; None if its client does not get to a request."""
        accepted = connection()  # uvloop returns what encrypts in its place
        limit_s = None if self._tls is None else _HANDSHAKE_S
        try:
            await loop.connect_accepted_socket(
                lambda: accepted, newcomer, ssl=self._tls, ssl_handshake_timeout=limit_s
            )
        except OSError:  # also of TLS, and where its time is up
            return None
        return accepted

    def _scratch(self) -> memoryview:
        return memoryview(bytearray(self._scratch_byte_size))

    def _opened(self, connection: HttpProtocol) -> None:
        if len(self.connections) < self._limit:
            self._quiet_order.add(connection)
        else:
            self._make_room(connection)
        self.connections[connection] = None

    def _make_room(self, newcomer: HttpProtocol) -> None:
        """End the quietest connection, or, where all are busy, have the newcomer served otherwise."""
        displaced = self._quiet_order.take()
        if displaced is not None:
            self._quiet_order.add(newcomer)
        elif self._when_crowded is not None:
            newcomer.restrict(self._when_crowded)
            displaced = self._reserve.add(newcomer)
        else:
            displaced = next(iter(self.connections))
            self._quiet_order.add(newcomer)
        if displaced is not None:
            self._lost(displaced)  # it counts no longer, though it is gone a turn later
            displaced.abort()

    def _lost(self, connection: HttpProtocol) -> None:
        self.connections.pop(connection, None)
        self._quiet_order.discard(connection)
        self._reserve.discard(connection)
        self._closed.set()
