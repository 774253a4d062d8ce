"""The metrics port: `GET /metrics` in Prometheus text format."""

from __future__ import annotations

import asyncio
import logging

from tritonpy.admission import Admission
from tritonpy.dataplane import Address
from tritonpy.frontends.errors import client_error
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import (
    TEXT,
    HttpRequest,
    error_response,
    refusal,
    response_head,
)
from tritonpy.frontends.http.listener import HttpListener
from tritonpy.frontends.services import BuiltInFrontend
from tritonpy.hookspecs import hookimpl
from tritonpy.metrics.exposition import MetricsPage

_MOST_CONNECTIONS = 16  # more would take descriptors from other ports
_SCRATCH_BYTE_SIZE = 16 * 1024
_LAST_BYTES_S = 5.0  # for scrapes that are under way when the server stops
_PAGE = b"text/plain; charset=utf-8"
_ALLOW = b"Allow: GET\r\n"

_log = logging.getLogger("tritonpy.metrics")


@hookimpl
def frontend_initialize(frontend: BuiltInFrontend) -> None:
    """Say where it will listen."""
    frontend.refuse_settings()
    options = frontend.options
    frontend.addresses = [Address(options.metrics_address, options.metrics_port, options.metrics_reuse_port)]
    frontend.state = MetricsPort(frontend.services.page, options.idle_timeout_s)


@hookimpl
async def frontend_start(frontend: BuiltInFrontend) -> None:
    """Listen."""
    [(host, port, reuse_port)] = frontend.addresses
    metrics_port: MetricsPort = frontend.state
    frontend.addresses = [Address(host, await metrics_port.start(host, port, reuse_port), reuse_port)]


@hookimpl
async def frontend_stop(frontend: BuiltInFrontend) -> None:
    """Answer scrapes until the models are gone."""
    await frontend.drained()
    await frontend.state.stop()


class MetricsPort:
    """Serves a page.

    Args:
        page: what scrapes are answered with.
        idle_timeout_s: how long a client may ask nothing; 0 for no limit.
    """

    def __init__(self, page: MetricsPage, idle_timeout_s: float = 0) -> None:
        self._listener = HttpListener(
            Scrapes(page),
            Admission(0),  # nothing is held: requests have no bodies
            _MOST_CONNECTIONS,
            json_limit=0,
            scratch_byte_size=_SCRATCH_BYTE_SIZE,
            idle_timeout_s=idle_timeout_s,
        )

    async def start(self, address: str, port: int, reuse_port: bool = False) -> int:
        """Listen, and return the port, which the system chose if `port` is 0.

        Args:
            address: see `sockets.listening_sockets`.
            port: likewise.
            reuse_port: let other servers that say so too listen on the same port.

        Raises:
            InvalidArg: nobody knows the address.
            Unavailable: the address cannot be had.
        """
        return await self._listener.start(address, port, reuse_port)

    async def stop(self) -> None:
        """Stop listening and close the connections, those that are being answered after that."""
        await self._listener.stop_accepting()
        await self._listener.stop(_LAST_BYTES_S)


class Scrapes:
    """Answers requests of the metrics port; satisfies `answering.Handler`.

    Args:
        page: what is shown.
    """

    def __init__(self, page: MetricsPage) -> None:
        self._page = page
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer one request, the page as soon as it is written."""
        if request.method != b"GET":
            connection.write(response_head(405, TEXT, 0, connection.keep_alive, (_ALLOW,)))
        elif request.path != "/metrics":  # as Triton does: 200 and nothing
            connection.write(response_head(200, TEXT, 0, connection.keep_alive))
        else:
            task = asyncio.get_running_loop().create_task(self._show(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        """The answer to a request with a body, which is not read."""
        if request.method != b"GET":
            return response_head(405, TEXT, 0, keep_alive, (_ALLOW,))
        return refusal(413, "the metrics port takes no request with a body", keep_alive)

    async def _show(self, connection: HttpConnection) -> None:
        try:
            body = await self._page.text()
        except Exception as exc:
            connection.write(error_response(client_error(exc, "GET /metrics", _log), connection.keep_alive))
        else:
            head = response_head(200, _PAGE, len(body), connection.keep_alive)
            connection.write_parts(head, [body], len(body))
