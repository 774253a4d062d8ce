"""The inference port: listens, keeps track of connections, sweeps stalled ones, drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import replace

from tritonpy.dataplane import Address, Dataplane
from tritonpy.frontends.certificates import server_context
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.connection.access_log import AccessLog
from tritonpy.frontends.http.connection.eviction import QuietOrder
from tritonpy.frontends.http.connection.protocol import HttpProtocol, Port
from tritonpy.frontends.http.connection.stalled_clients import Sweeper
from tritonpy.frontends.http.router import Router
from tritonpy.frontends.http.routes import make_routes
from tritonpy.frontends.reserve import Reserve
from tritonpy.frontends.services import BuiltInFrontend, FrontendServices
from tritonpy.frontends.sockets import listening_sockets, most_connections
from tritonpy.hookspecs import hookimpl
from tritonpy.options import ServerOptions

_BACKLOG = 1024
_SCRATCH_BYTE_SIZE = 256 * 1024
_SHARE = 2 / 3  # of the descriptors that ports may have
_MOST_CONNECTIONS = 16_384
_GOODBYE_S = 2.0  # for a client to answer the end of TLS, which few do
_FIRST_BYTES_S = 0.05  # for the request of a connection that was waiting when the server stopped
_LAST_BYTES_S = 5.0  # for clients to receive answers that are given when the server stops


@hookimpl
def frontend_initialize(frontend: BuiltInFrontend) -> None:
    """Check certificates and patterns."""
    frontend.refuse_settings()
    options = frontend.options
    frontend.addresses = [Address(options.http_address, options.http_port, options.http_reuse_port)]
    frontend.state = HttpServer(frontend.dataplane, frontend.services, options)


@hookimpl
async def frontend_start(frontend: BuiltInFrontend) -> None:
    """Listen."""
    server: HttpServer = frontend.state
    try:
        await server.start()
    except BaseException:
        await server.stop(0)
        raise
    frontend.addresses = [frontend.addresses[0]._replace(port=server.port)]


@hookimpl
async def frontend_stop(frontend: BuiltInFrontend) -> None:
    """Take no connections, and close those that are left when all requests are answered."""
    server: HttpServer = frontend.state
    await server.stop_accepting()
    await frontend.drained()
    await server.stop(_LAST_BYTES_S)


class HttpServer:
    """HTTP/1.1 on one address, encrypted if there is a certificate.

    Args:
        dataplane: what requests are answered with.
        services: what it shares with other frontends.
        options: of the server.

    Attributes:
        connections: those that are open, in the order in which they came.
        sweeper: ends the stalled ones.

    Raises:
        InvalidArg: a certificate or a key cannot be used.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> None:
        self._codec = JsonCodec()
        routes = make_routes(dataplane, services, options, self._codec)
        self._router = Router(routes, options.http_restricted_apis)
        self._options = options
        self._tls = server_context(options.https_certificate, options.https_key)
        pattern = options.http_header_forward_pattern
        self._forwarding = HeaderForwarding(pattern, "--http-header-forward-pattern") if pattern else None
        self._port = options.http_port
        self._admission = services.admission
        self.connections: dict[HttpProtocol, None] = {}
        self._quiet_order = QuietOrder[HttpProtocol]()
        self._reserve = Reserve[HttpProtocol]()
        self._limit = most_connections(options.http_max_connection_count, _SHARE, _MOST_CONNECTIONS)
        self._closed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._listening: list[socket.socket] = []
        self._connection: Callable[[], HttpProtocol] | None = None
        self._access_log: AccessLog | None = None
        self.sweeper = Sweeper(self.connections, self._quiet_order, options.idle_timeout_s)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidArg: the access log cannot be used, or nobody knows the address.
            Unavailable: the address cannot be had.
        """
        options = self._options
        tls = self._tls
        if options.http_access_log:
            self._access_log = AccessLog(options.http_access_log)
        loop = asyncio.get_running_loop()
        # One read buffer serves all connections where a read is complete before the next one begins, as in
        # uvloop and the selector loops; Windows' proactor reads into buffers in the background.
        shares_scratch = type(loop).__name__ != "ProactorEventLoop"
        port = Port(
            self._router,
            self._admission,
            options.http_max_input_byte_size,
            memoryview(bytearray(_SCRATCH_BYTE_SIZE)),
            self._opened,
            self._lost,
            self._forwarding,
            self._access_log,
            is_tls=tls is not None,
            quiet_order=self._quiet_order,
        )

        def connection() -> HttpProtocol:
            if shares_scratch:
                return HttpProtocol(port)
            return HttpProtocol(replace(port, scratch=memoryview(bytearray(_SCRATCH_BYTE_SIZE))))

        listening = await listening_sockets(options.http_address, options.http_port, options.http_reuse_port)
        self._port = listening[0].getsockname()[1]
        self._listening, self._connection = listening, connection
        for listener in listening:
            server = await loop.create_server(
                connection,
                sock=listener,
                backlog=_BACKLOG,
                ssl=tls,
                ssl_shutdown_timeout=_GOODBYE_S if tls is not None else None,
            )
            self._servers.append(server)
        self.sweeper.start()

    async def stop_accepting(self) -> None:
        """Close the listening socket and every connection that has nothing under way.

        Clients that the system has connected, and the loop has not accepted yet, may have sent a request
        already. They are accepted and answered: the end of the listening socket would reset them.
        """
        self.sweeper.stop()
        newcomers = [] if self._tls is not None else _accept_all(self._listening)
        self._listening.clear()
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self.connections):
            connection.drain()
        if newcomers and self._connection is not None:
            loop = asyncio.get_running_loop()
            accepted = [await loop.connect_accepted_socket(self._connection, new) for new in newcomers]
            await asyncio.sleep(_FIRST_BYTES_S)
            for _, connection in accepted:
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
        await self._codec.close()
        if self._access_log is not None:
            await asyncio.to_thread(self._access_log.close)

    def _opened(self, connection: HttpProtocol) -> None:
        if len(self.connections) < self._limit:
            self._quiet_order.add(connection)
        else:
            self._make_room(connection)
        self.connections[connection] = None

    def _make_room(self, newcomer: HttpProtocol) -> None:
        """End the quietest connection; where all are busy, the newcomer may only ask for health."""
        displaced = self._quiet_order.take()
        if displaced is not None:
            self._quiet_order.add(newcomer)
        else:
            newcomer.restrict(self._router.health_alone)
            displaced = self._reserve.add(newcomer)
        if displaced is not None:
            self._lost(displaced)  # it counts no longer, though it is gone a turn later
            displaced.abort()

    def _lost(self, connection: HttpProtocol) -> None:
        self.connections.pop(connection, None)
        self._quiet_order.discard(connection)
        self._reserve.discard(connection)
        self._closed.set()


def _accept_all(listening: list[socket.socket]) -> list[socket.socket]:
    """The connections that wait to be accepted."""
    accepted: list[socket.socket] = []
    for listener in listening:
        with contextlib.suppress(OSError):  # none waits any more, or the limit of descriptors is reached
            while len(accepted) < _BACKLOG:
                connected, _ = listener.accept()
                connected.setblocking(False)
                accepted.append(connected)
    return accepted
