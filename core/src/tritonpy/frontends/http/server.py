"""The inference port: what it is made of, and in which order it starts and stops."""

from __future__ import annotations

import asyncio

from tritonpy.dataplane import Address, Dataplane
from tritonpy.frontends.certificates import server_context
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.connection.access_log import AccessLog
from tritonpy.frontends.http.listener import HttpListener
from tritonpy.frontends.http.router import Router
from tritonpy.frontends.http.routes import make_routes
from tritonpy.frontends.services import BuiltInFrontend, FrontendServices
from tritonpy.frontends.sockets import most_connections
from tritonpy.hookspecs import hookimpl
from tritonpy.options import ServerOptions

_SCRATCH_BYTE_SIZE = 256 * 1024
_SHARE = 2 / 3  # of the descriptors that ports may have
_MOST_CONNECTIONS = 16_384
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
        port = await server.start()
    except BaseException:
        await server.stop(0)
        raise
    frontend.addresses = [frontend.addresses[0]._replace(port=port)]


@hookimpl
async def frontend_stop(frontend: BuiltInFrontend) -> None:
    """Take no connections, and close those that are left when all requests are answered."""
    server: HttpServer = frontend.state
    await server.listener.stop_accepting()
    await frontend.drained()
    await server.stop(_LAST_BYTES_S)


class HttpServer:
    """The calls of inference over HTTP/1.1, encrypted if there is a certificate.

    Args:
        dataplane: what requests are answered with.
        services: what it shares with other frontends.
        options: of the server.

    Attributes:
        listener: takes connections.

    Raises:
        InvalidArg: a certificate or a key cannot be used.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> None:
        self._codec = JsonCodec()
        self._options = options
        self._access_log: AccessLog | None = None
        router = Router(make_routes(dataplane, services, options, self._codec), options.http_restricted_apis)
        pattern = options.http_header_forward_pattern
        self.listener = HttpListener(
            router,
            services.admission,
            most_connections(options.http_max_connection_count, _SHARE, _MOST_CONNECTIONS),
            json_limit=options.http_max_input_byte_size,
            scratch_byte_size=_SCRATCH_BYTE_SIZE,
            when_crowded=router.health_alone,
            idle_timeout_s=options.idle_timeout_s,
            tls=server_context(options.https_certificate, options.https_key, options.https_client_ca),
            forwarding=HeaderForwarding(pattern, "--http-header-forward-pattern") if pattern else None,
        )

    async def start(self) -> int:
        """Listen, and return the port.

        Raises:
            InvalidArg: the access log cannot be used, or nobody knows the address.
            Unavailable: the address cannot be had.
        """
        options = self._options
        if options.http_access_log:
            self._access_log = AccessLog(options.http_access_log)
        return await self.listener.start(
            options.http_address, options.http_port, options.http_reuse_port, self._access_log
        )

    async def stop(self, timeout_s: float) -> None:
        """Wait until answers on their way have left, then drop the connections that are left."""
        await self.listener.stop(timeout_s)
        await self._codec.close()
        if self._access_log is not None:
            await asyncio.to_thread(self._access_log.close)
