"""Writing the one response of an inference."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

from tritonpy.errors import Cancelled, Internal, TritonError
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.compression import compress, compressed, is_quick
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import BINARY, JSON, Chunk, error_response, response_head
from tritonpy.frontends.http.encoder import Encoded, ResponseEncoder, Unfinished
from tritonpy.frontends.http.infer import OutputForm
from tritonpy.request import InferRequest, label_of
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.http")

_Result = TypeVar("_Result")


async def unless_lost(connection: HttpConnection, work: Awaitable[_Result]) -> _Result:
    """Wait for something on behalf of a client, and no longer than it is there.

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
    """Say in place of an answer why there is none."""
    error = unwritable(about, exc)
    connection.write(error_response(error, connection.keep_alive))


def unwritable(about: Mapping[str, str], exc: Exception) -> TritonError:
    """What the client is told of a response that cannot be written; what nobody meant for it is logged."""
    if isinstance(exc, TritonError):
        return exc
    label = label_of(about["request_id"])
    _log.error("%sthe response cannot be written", label, exc_info=exc, extra=about)
    return Internal(f"{label}the response cannot be written: {type(exc).__name__}: {exc}")


class AnswerWriter:
    """Turns responses into bytes for connections; one for all of them, on the loop only.

    Args:
        codec: writes JSON that is large.
    """

    def __init__(self, codec: JsonCodec) -> None:
        self.encoder = ResponseEncoder()
        self._codec = codec
        self._tasks: set[asyncio.Task[None]] = set()

    def write(
        self,
        connection: HttpConnection,
        response: tuple[bytes, list[Chunk], int | None],
        coding: bytes | None,
    ) -> Coroutine[None, None, None] | None:
        """Write a response that is encoded: its JSON, the tensors behind it, and their size together.

        Returns:
            What is still to be done for it, where that takes a while.
        """
        header, wires, size = response
        if coding is not None:
            body_size = len(header) + (size or 0)
            if not is_quick(body_size):
                return self._write_compressed(connection, [header, *wires], len(header), size, coding)
            self._write_body(connection, compress([header, *wires], coding), len(header), size, coding)
            return None
        if size is None:
            connection.write(response_head(200, JSON, len(header), connection.keep_alive) + header)
            return None
        length = b"Inference-Header-Content-Length: %d\r\n" % len(header)
        head = response_head(200, BINARY, len(header) + size, connection.keep_alive, (length,)) + header
        connection.write_parts(head, wires, size)
        return None

    async def write_unfinished(
        self,
        connection: HttpConnection,
        response: Unfinished,
        coding: bytes | None = None,
        headers: Sequence[bytes] = (),
    ) -> None:
        """Have the JSON of large tensors made elsewhere, then write the response."""
        texts = await unless_lost(connection, self._codec.write(response.tensors))
        json_parts = response.filled(texts)
        json_size = sum(map(len, json_parts))
        wires = response.wires
        size = sum(map(len, wires)) if wires else None
        parts: list[Chunk] = [*json_parts, *wires]
        if coding is None:
            self._write_body(connection, parts, json_size, size, None, headers)
        else:
            await self._write_compressed(connection, parts, json_size, size, coding)

    def finish_later(
        self, connection: HttpConnection, about: Mapping[str, str], rest: Coroutine[None, None, None]
    ) -> None:
        """See an answer through that takes its time; one that fails, or whose client goes, ends too.

        Args:
            connection: whose answer it is.
            about: the request, as `InferRequest.about`.
            rest: writes it.
        """

        async def finish() -> None:
            try:
                await rest
            except Exception as exc:
                refuse(connection, about, exc)

        task = asyncio.get_running_loop().create_task(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_compressed(
        self, connection: HttpConnection, parts: list[Chunk], json_size: int, size: int | None, coding: bytes
    ) -> None:
        pieces = await unless_lost(connection, compressed(parts, json_size + (size or 0), coding))
        self._write_body(connection, pieces, json_size, size, coding)

    def _write_body(
        self,
        connection: HttpConnection,
        parts: list[Chunk] | list[bytes],
        json_size: int,
        size: int | None,
        coding: bytes | None,
        headers: Sequence[bytes] = (),
    ) -> None:
        """Write the pieces of a body; `json_size` and `size` are those before compression."""
        extra = list(headers)
        if coding is not None:
            extra.append(b"Content-Encoding: %b\r\n" % coding)
        if size is not None:
            extra.append(b"Inference-Header-Content-Length: %d\r\n" % json_size)
        byte_size = sum(map(len, parts))
        content_type = JSON if size is None else BINARY
        head = response_head(200, content_type, byte_size, connection.keep_alive, extra)
        connection.write_parts(head, list(parts), byte_size)


class InferAnswer:
    """Writes the one response of an inference; satisfies `ResponseSink`.

    Args:
        connection: whose current request it is.
        writer: of all answers.
        form: how the client wants its outputs.
        coding: how the client wants its body, None for as it is.
        on_done: called once, before the answer is written.
    """

    __slots__ = ("_coding", "_connection", "_form", "_is_answered", "_on_done", "_writer")

    def __init__(
        self,
        connection: HttpConnection,
        writer: AnswerWriter,
        form: OutputForm,
        coding: bytes | None,
        on_done: Callable[[], None] | None,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._form = form
        self._coding = coding
        self._on_done = on_done
        self._is_answered = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """See `ResponseSink`."""
        if self._is_answered:  # by now the connection may be answering its next request
            if response is not None:
                text = "%sexpected a single response, got another one"
                _log.error(text, request.label, extra=request.about)
            return
        self._is_answered = True
        connection = self._connection
        if self._on_done is not None:
            self._on_done()
        if response is None:
            response = InferResponse(error=Internal(f"{request.label}the model sent no response"))
        if response.error is not None:
            # Not raised: its traceback would hold the frames below this one, and with them a worker that died
            # together with its shared memory, until the garbage collector happens to run.
            connection.write(error_response(response.error, connection.keep_alive))
            return
        try:
            writer = self._writer
            encoded: Encoded = writer.encoder.encode(request, response, self._form)
            if isinstance(encoded, Unfinished):
                rest: Coroutine[None, None, None] | None
                rest = writer.write_unfinished(connection, encoded, self._coding)
            else:
                rest = writer.write(connection, encoded, self._coding)
            if rest is not None:
                writer.finish_later(connection, request.about, rest)
        except Exception as exc:
            refuse(connection, request.about, exc)
