"""The metrics port: `GET /metrics` in Prometheus text format."""

from __future__ import annotations

import asyncio
import errno

from aiohttp import web

from tritonpy.dataplane import Address
from tritonpy.errors import Unavailable
from tritonpy.frontends.services import BuiltInFrontend
from tritonpy.hookspecs import hookimpl
from tritonpy.metrics.exposition import MetricsPage

_MOST_CONNECTIONS = 16


class _ScrapeServer(web.Server):
    """Ends the connections that came first where more than a few would take descriptors from others."""

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by aiohttp."""
        super().connection_made(handler, transport)
        for earlier in self.connections[:-_MOST_CONNECTIONS]:
            earlier.force_close()


@hookimpl
def frontend_initialize(frontend: BuiltInFrontend) -> None:
    """Say where it will listen."""
    frontend.refuse_settings()
    options = frontend.options
    frontend.addresses = [Address(options.metrics_address, options.metrics_port)]
    frontend.state = MetricsPort(frontend.services.page)


@hookimpl
async def frontend_start(frontend: BuiltInFrontend) -> None:
    """Listen."""
    [(host, port, _)] = frontend.addresses
    metrics_port: MetricsPort = frontend.state
    frontend.addresses = [Address(host, await metrics_port.start(host, port))]


@hookimpl
async def frontend_stop(frontend: BuiltInFrontend) -> None:
    """Answer scrapes until the models are gone."""
    await frontend.drained()
    await frontend.state.stop()


class MetricsPort:
    """Serves a page.

    Args:
        page: what scrapes are answered with.
    """

    def __init__(self, page: MetricsPage) -> None:
        self._page = page
        self._runner: web.ServerRunner | None = None

    async def start(self, address: str, port: int) -> int:
        """Listen, and return the port, which the system chose if `port` is 0.

        Raises:
            Unavailable: the port is taken.
        """
        runner = web.ServerRunner(_ScrapeServer(self._answer, access_log=None))
        await runner.setup()
        self._runner = runner
        try:
            await web.TCPSite(runner, address, port).start()
        except OSError as exc:
            await self.stop()
            if exc.errno == errno.EADDRINUSE:
                raise Unavailable(f"Socket '{address}:{port}' already in use") from exc
            raise Unavailable(f"cannot listen on '{address}:{port}': {exc.strerror}") from exc
        bound: int = runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Stop listening and close the connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.method != "GET":
            return web.Response(status=405, headers={"Allow": "GET"})
        if request.path != "/metrics":
            return web.Response()  # as Triton does: 200 and nothing
        body = await self._page.text()
        return web.Response(body=body, content_type="text/plain", charset="utf-8")
