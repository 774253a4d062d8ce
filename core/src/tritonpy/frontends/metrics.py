"""The metrics port: `GET /metrics` in Prometheus text format."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence

from aiohttp import web

from tritonpy.errors import Unavailable
from tritonpy.metrics.exposition import Collector, render

_MOST_CONNECTIONS = 16


class _ScrapeServer(web.Server):
    """Ends the connections that came first where more than a few would take descriptors from others."""

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by aiohttp."""
        super().connection_made(handler, transport)
        for earlier in self.connections[:-_MOST_CONNECTIONS]:
            earlier.force_close()


class MetricsFrontend:
    """Serves families of metrics.

    Args:
        families: what the page shows.
        before_scrape: each copies loop-owned numbers (as `ModelMetrics.take`); they run on the loop before a
            thread renders the copies.
    """

    def __init__(self, families: Collector, before_scrape: Sequence[Callable[[], None]]) -> None:
        self._families = families
        self._before_scrape = before_scrape
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
        for copy in self._before_scrape:
            copy()
        body = await asyncio.to_thread(render, self._families)
        return web.Response(body=body, content_type="text/plain", charset="utf-8")
