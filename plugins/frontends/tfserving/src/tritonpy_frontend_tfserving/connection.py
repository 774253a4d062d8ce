"""Connections of clients of the REST API."""

from __future__ import annotations

import asyncio

import orjson
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler


class Connection(RequestHandler):
    """One connection, on which a body that cannot be read ends the wait for the rest of it.

    aiohttp's parser reports such a body, as one in chunks of malformed sizes, like a next request that is
    wrong. That would be answered after the current one, which waits for its body for ever.
    """

    __slots__ = ("_body",)

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, access_log=None)  # type: ignore[arg-type]  # None: there is none
        self._body: StreamReader | None = None

    def begin(self, body: StreamReader) -> None:
        """A request is answered from now on, whose body arrives here."""
        self._body = body

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        body = self._body
        # Nothing follows a request whose body is not complete, but the report of a fault.
        if body is not None and self._messages and not body.is_eof() and body.exception() is None:
            body.set_exception(web.RequestPayloadError("it is not as its headers say"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request of HTTP; the log does not show a client's mistakes."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        text = f"the request cannot be read: {' '.join((message or str(exc)).split())}"
        response = web.Response(
            status=status, body=orjson.dumps({"error": text}), content_type="application/json"
        )
        response.force_close()
        return response


def make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """The request of a connection, which is told of it."""
    if isinstance(protocol, Connection):
        protocol.begin(payload)
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
