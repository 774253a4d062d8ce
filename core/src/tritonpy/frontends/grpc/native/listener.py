"""A gRPC port on an engine of its own: listens, keeps track of connections, stops without losing calls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tritonpy.admission import Admission
from tritonpy.frontends.grpc.compression import MessageInflation
from tritonpy.frontends.grpc.guard import CallGuard
from tritonpy.frontends.grpc.native.compression import MessageDeflation
from tritonpy.frontends.grpc.native.connection import CallFactory, GrpcConnection, Port
from tritonpy.frontends.grpc.native.deadlines import Deadlines
from tritonpy.frontends.grpc.native.engine import EngineSettings
from tritonpy.frontends.grpc.native.keepalive import Lifetimes
from tritonpy.frontends.grpc.native.metadata import RequestHeads
from tritonpy.frontends.grpc.native.ngh2_engine import Ngh2Engine
from tritonpy.frontends.grpc.native.stalled_clients import Sweeper, Waiting
from tritonpy.frontends.grpc.native.tls import GOODBYE_S, HANDSHAKE_S, tls_context
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.reserve import Reserve
from tritonpy.frontends.sockets import (
    accept_waiting,
    forget_unix,
    is_unix,
    listening_sockets,
    most_connections,
    unix_socket,
)
from tritonpy.options import ServerOptions

_BACKLOG = 1024
_SCRATCH_BYTE_SIZE = 256 * 1024
_MOST_MESSAGE_BYTES = 2**31 - 1
_SHARE = 1 / 3  # of the descriptors that ports may have
_MOST_CONNECTIONS = 4096

_LATE_CALLS_S = 0.05
"""How long a stopping server goes on to refuse calls in words after the last answer."""
_LAST_BYTES_S = 5.0
"""How long a stopping server lets clients take to receive answers that are given."""

_LEAVING_S = 1.0
"""How long clients may take to hear that they should open no more calls."""


_GIVEN_UP = "The request is given up: the exit timeout of the server has expired"


class _Everyone:
    """All connections and their calls."""

    def __init__(self, connections: Iterable[GrpcConnection]) -> None:
        self._connections = connections

    def __iter__(self) -> Iterator[Waiting]:
        for connection in self._connections:
            yield connection
            yield from connection.calls


class GrpcListener:
    """Calls of gRPC on one address; on the loop only.

    Args:
        calls: what answers each, by its full name.
        admission: counts the bytes of requests that are held.
        options: of the server: its address, certificates and limits.

    Attributes:
        shared: by all connections.
        connections: those that are open, in the order in which they came.
        sweeper: ends the stalled ones.

    Raises:
        InvalidArg: the options contradict each other, or a file with a certificate or key is no such thing.
    """

    def __init__(
        self, calls: Mapping[str, CallFactory], admission: Admission, options: ServerOptions
    ) -> None:
        self._options = options
        self._tls = tls_context(options)  # before models take their time to load
        self._port = options.grpc_port
        self._servers: list[asyncio.Server] = []
        self._listening: list[socket.socket] = []
        self._closed = asyncio.Event()
        self._deadlines = Deadlines()
        self._limit = most_connections(options.grpc_max_connection_count, _SHARE, _MOST_CONNECTIONS)
        self.connections: dict[GrpcConnection, None] = {}
        self._reserve = Reserve[GrpcConnection]()
        self.sweeper = Sweeper(_Everyone(self.connections))
        level = options.grpc_compression_level
        self.shared = Port(
            engine=Ngh2Engine,
            engine_settings=EngineSettings(max_concurrent_streams=options.grpc_max_concurrent_streams),
            calls=dict(calls),
            guard=CallGuard(options.grpc_restricted_protocols) if options.grpc_restricted_protocols else None,
            admission=admission,
            inflation=MessageInflation(options.grpc_max_inflated_byte_size, admission),
            deflation=None if level == "none" else MessageDeflation(level),
            max_message_byte_size=min(admission.limit or _MOST_MESSAGE_BYTES, _MOST_MESSAGE_BYTES),
            scratch=memoryview(bytearray(_SCRATCH_BYTE_SIZE)),
            on_open=self._opened,
            on_close=self._lost,
            deadlines=self._deadlines,
            heads=RequestHeads(),
            lifetimes=Lifetimes.of(options),
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidArg: nobody knows the address.
            Unavailable: the address cannot be had.
        """
        options = self._options
        address = options.grpc_address
        loop = asyncio.get_running_loop()
        listen: Callable[..., Awaitable[asyncio.Server]]
        if is_unix(address):
            self._port, listening, listen = 0, [unix_socket(address)], loop.create_unix_server
        else:
            listening = await listening_sockets(address, self._port, options.grpc_reuse_port)
            self._port, listen = listening[0].getsockname()[1], loop.create_server
        for listener in listening:
            server = await listen(
                self._connection,
                sock=listener,
                backlog=_BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
                ssl_shutdown_timeout=None if self._tls is None else GOODBYE_S,
            )
            self._servers.append(server)
        self._listening = listening
        self.sweeper.start()

    async def stop(
        self, timeout_s: float, drain: Callable[[], Awaitable[None]], on_drained: Callable[[], None]
    ) -> None:
        """Refuse new requests, wait for those in flight, and cancel those that take longer.

        The port closes last, and a moment later than it could: a client that has just been answered is about
        to send the next call. Until then late ones are told UNAVAILABLE.

        Args:
            timeout_s: for those in flight.
            drain: refuses new requests, and returns when every accepted one is answered.
            on_drained: called behind it, or when it has taken too long.
        """
        if not self._servers:
            return
        grace_s = _LAST_BYTES_S
        if self._options.grpc_reuse_port:
            await self._leave_newcomers_to_others()
        for connection in list(self.connections):
            connection.leave()  # so that clients go elsewhere while the last calls are answered
        try:
            async with asyncio.timeout(timeout_s):
                await drain()
                await asyncio.sleep(_LATE_CALLS_S)
        except TimeoutError:
            grace_s = 0.0
        on_drained()
        self.sweeper.stop()
        for server in self._servers:
            server.close()
        self._servers.clear()
        forget_unix(self._options.grpc_address)
        for connection in list(self.connections):
            if not grace_s:
                connection.refuse_all(Status.UNAVAILABLE, _GIVEN_UP)
            if connection.has_greeted:
                connection.leave()
            else:  # it has had the time to
                connection.end()
        await self._wait_for_connections(min(grace_s, _LEAVING_S))
        for connection in list(self.connections):
            connection.end()
        await self._wait_for_connections(grace_s)
        for connection in list(self.connections):
            connection.abort()
        await self._wait_for_connections(_LAST_BYTES_S)
        self._deadlines.stop()

    async def _leave_newcomers_to_others(self) -> None:
        """Listen no more: who shares the port would else get only a part of those that come.

        Those that have come already are served.
        """
        newcomers = accept_waiting(self._listening, _BACKLOG)
        for server in self._servers:
            server.close()
        loop = asyncio.get_running_loop()
        limit_s = None if self._tls is None else HANDSHAKE_S
        accepting = (
            loop.connect_accepted_socket(
                self._connection, newcomer, ssl=self._tls, ssl_handshake_timeout=limit_s
            )
            for newcomer in newcomers
        )
        await asyncio.gather(*accepting, return_exceptions=True)  # who fails has asked nothing

    async def _wait_for_connections(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.connections:
                    self._closed.clear()
                    await self._closed.wait()

    def _connection(self) -> GrpcConnection:
        """Make what serves the next client.

        One read buffer is enough where a read is complete before the next one begins, as in uvloop and the
        selector loops; Windows' proactor reads into buffers in the background.
        """
        shared = self.shared
        if type(asyncio.get_running_loop()).__name__ == "ProactorEventLoop":
            shared = replace(shared, scratch=memoryview(bytearray(_SCRATCH_BYTE_SIZE)))
        return GrpcConnection(shared)

    def _opened(self, connection: GrpcConnection) -> None:
        if len(self.connections) - len(self._reserve) >= self._limit:
            connection.is_reserved = True
            displaced = self._reserve.add(connection)
            if displaced is not None:
                self._lost(displaced)  # it counts no longer, though it is gone a turn later
                displaced.abort()
        self.connections[connection] = None

    def _lost(self, connection: GrpcConnection) -> None:
        self.connections.pop(connection, None)
        self._reserve.discard(connection)
        self._closed.set()
