"""Writing whole answers: compressed, or with large JSON made elsewhere, where that is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from tritonpy.errors import Cancelled, Internal, TritonError
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.compression import compress, compressed, is_quick
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import Chunk, error_response, response_head
from tritonpy.frontends.http.encoder import Encoded, content_headers
from tritonpy.request import InferRequest, label_of

_log = logging.getLogger("tritonpy.http")

_Result = TypeVar("_Result")


async def unless_lost(connection: HttpConnection, work: Awaitable[_Result]) -> _Result:
    """Wait for something on behalf of a client, as long as it is connected.

    Raises:
        Cancelled: it is gone; the work was cancelled.
    """
    task = asyncio.ensure_future(work)

    def on_lost() -> None:
        task.cancel()

    connection.watch(on_lost)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        raise Cancelled("the client is gone") from None


def refuse(connection: HttpConnection, about: Mapping[str, str], exc: Exception) -> None:
    """Answer with the error that prevented the answer."""
    error = unwritable(about, exc)
    connection.write(error_response(error, connection.keep_alive))


def unwritable(about: Mapping[str, str], exc: Exception) -> TritonError:
    """The error in place of a response that cannot be written; one not made for clients is logged."""
    if isinstance(exc, TritonError):
        return exc
    label = label_of(about["request_id"])
    _log.error("%sthe response cannot be written", label, exc_info=exc, extra=about)
    return Internal(f"{label}the response cannot be written: {type(exc).__name__}: {exc}")


class AnswerWriter:
    """Writes responses that are encoded; one for all connections, on the loop only.

    Args:
        codec: writes JSON that is large.
    """

    def __init__(self, codec: JsonCodec) -> None:
        self._codec = codec
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self,
        connection: HttpConnection,
        request: InferRequest,
        encoded: Encoded,
        coding: bytes | None = None,
    ) -> None:
        """Write a response: now, or when its large JSON or its compression is done.

        Args:
            connection: gets it.
            request: that it answers.
            encoded: the response.
            coding: how the client wants the body compressed; None for not at all.
        """
        if encoded.opening and coding is None and connection.keep_alive:
            connection.write_parts(encoded.opening, encoded.wires, encoded.wire_size)
            return
        parts: list[Chunk] = [encoded.header, *encoded.wires]
        json_size = len(encoded.header)
        size = json_size + encoded.wire_size
        if encoded.missing or coding is not None:
            if encoded.missing or not is_quick(size):
                self._send_later(connection, request.about, encoded, coding)
                return
            assert coding is not None  # as above
            parts[:] = compress(parts, coding)
            size = sum(map(len, parts))
        _write(connection, encoded, coding, parts, size, json_size)

    def _send_later(
        self, connection: HttpConnection, about: Mapping[str, str], encoded: Encoded, coding: bytes | None
    ) -> None:
        """Write a response in a task; it ends also if that fails or the client goes."""

        async def send() -> None:
            try:
                texts: Sequence[Chunk] = ()
                if encoded.missing:
                    texts = await unless_lost(connection, self._codec.write(encoded.missing))
                parts = encoded.filled(texts)
                json_size = sum(map(len, parts))
                size = json_size + encoded.wire_size
                parts += encoded.wires
                if coding is not None:
                    parts[:] = await unless_lost(connection, compressed(parts, size, coding))
                    size = sum(map(len, parts))
                _write(connection, encoded, coding, parts, size, json_size)
            except Exception as exc:
                refuse(connection, about, exc)

        task = asyncio.get_running_loop().create_task(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(
    connection: HttpConnection,
    encoded: Encoded,
    coding: bytes | None,
    parts: list[Chunk],
    size: int,
    json_size: int,
) -> None:
    """Write a body of `size` bytes, of which `json_size` were JSON before they were compressed."""
    content_type, lines = content_headers(json_size, encoded.wire_size)
    extra = (*encoded.headers, *lines)
    if coding is not None:
        extra = (b"Content-Encoding: %b\r\n" % coding, *extra)
    head = response_head(encoded.status, content_type, size, connection.keep_alive, extra)
    connection.write_parts(head, parts, size)
