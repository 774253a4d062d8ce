"""The inference port: listens, keeps track of connections, sweeps stalled ones, drains at the end."""

from __future__ import annotations

import asyncio
import contextlib

from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.protocol import HttpConnection
from tritonpy.frontends.http.router import Router
from tritonpy.frontends.http.routes import make_routes
from tritonpy.frontends.http.settings import HttpSettings
from tritonpy.frontends.services import FrontendServices

_BACKLOG = 1024
_SCRATCH_BYTE_SIZE = 256 * 1024
_SWEEP_S = 15.0
_STALLED_SWEEPS = 4


class HttpServer:
    """HTTP/1.1 on one address.

    Args:
        dataplane: what requests are answered with.
        services: what it shares with other frontends.
        settings: where and how to listen.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, settings: HttpSettings) -> None:
        self._router = Router(make_routes(dataplane, services, settings), settings.restrictions)
        self._settings = settings
        pattern = settings.header_forward_pattern
        self._forwarding = HeaderForwarding(pattern, "--http-header-forward-pattern") if pattern else None
        self._port = settings.port
        self._admission = services.admission
        self._connections: set[HttpConnection] = set()
        self._closed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._epoch = 0

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be had.
        """
        settings = self._settings
        loop = asyncio.get_running_loop()
        # One read buffer serves all connections where a read is complete before the next one begins, as in
        # uvloop and the selector loops; Windows' proactor reads into buffers in the background.
        shares_scratch = type(loop).__name__ != "ProactorEventLoop"
        scratch = memoryview(bytearray(_SCRATCH_BYTE_SIZE))

        def connection() -> HttpConnection:
            own = scratch if shares_scratch else memoryview(bytearray(_SCRATCH_BYTE_SIZE))
            return HttpConnection(
                self._router,
                self._admission,
                settings.max_input_byte_size,
                own,
                self._opened,
                self._lost,
                self._forwarding,
            )

        self._server = await loop.create_server(connection, settings.address, settings.port, backlog=_BACKLOG)
        self._port = self._server.sockets[0].getsockname()[1]
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)

    async def stop_accepting(self) -> None:
        """Close the listening socket and every connection that has nothing under way."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.drain()

    async def stop(self, timeout_s: float) -> None:
        """Wait until answers on their way have left, then drop the connections that are left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._connections:
                    self._closed.clear()
                    await self._closed.wait()
        for connection in list(self._connections):
            connection.abort()

    def _opened(self, connection: HttpConnection) -> None:
        self._connections.add(connection)

    def _lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self._closed.set()

    def _sweep(self) -> None:
        """End connections whose request stopped arriving some sweeps ago."""
        self._epoch += 1
        for connection in list(self._connections):
            if connection.epoch == -1:
                connection.epoch = self._epoch
            elif connection.is_mid_message and self._epoch - connection.epoch >= _STALLED_SWEEPS:
                connection.time_out()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
