"""Calls of many messages: each has a task that reads and writes while it lasts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from google.protobuf.message import DecodeError

from tritonpy.errors import Internal, TritonError
from tritonpy.frontends.grpc.errors import HungUp, as_triton_error, status_of
from tritonpy.frontends.grpc.native.call import Call, CallConnection
from tritonpy.frontends.grpc.native.engine import StreamGone
from tritonpy.frontends.grpc.native.framing import Body, framed
from tritonpy.frontends.grpc.native.metadata import GZIP_HEADERS, OK_TRAILERS, RESPONSE_HEADERS, RequestHead

Serve: TypeAlias = "Callable[[StreamingCall], Awaitable[None]]"
"""Reads and writes a call's messages; returns when the call has succeeded."""

_MOST_QUEUED = 16 * 1024
"""Bytes of a call that may wait for its client's windows while the next message is written."""


class StreamingCall(Call):
    """A call whose messages are read and written by a coroutine.

    A message for which there is no room is held up, unlike that of a unary call, which is refused: other
    requests of the stream are on their way. Satisfies `admission.Waiter` and `stream.Shortcut`.

    Args:
        serve: makes the coroutine.
    """

    __slots__ = ("_messages", "_readable", "_receive", "_serve", "_task", "_untaken", "_wanted", "_writable")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, serve: Serve) -> None:
        super().__init__(connection, stream, head)
        self._serve = serve
        self._messages: deque[tuple[int, Body]] = deque()
        self._untaken = 0  # bytes read for which the client has not been given room
        self._wanted = 0  # bytes of a message of which no more is let in until there is room for it
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._receive: Callable[[Body], bool] | None = None

    @property
    def head(self) -> RequestHead:
        """What the headers of the call say."""
        return self._head

    def begin(self) -> None:
        self._send_headers()  # which clients wait for, though no message may come for long
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def read(self) -> Body | None:
        """The client's next message; None when it sends no more.

        Raises:
            TritonError: it is compressed and cannot be read.
        """
        while not self._messages:
            if self._is_half_closed or self.is_over:
                return None
            self._readable = asyncio.get_running_loop().create_future()
            await self._readable
        flag, body = self._messages.popleft()
        self._return_room()
        if not flag:
            return body
        inflation = self._connection.port.inflation
        return await inflation.inflate(body if isinstance(body, bytes) else bytes(body))

    async def write(self, message: bytes) -> None:
        """Send a message; returns when the next one may follow.

        Raises:
            HungUp: nothing can be sent any more.
        """
        framed_message = framed((message,))
        deflation = self._connection.port.deflation
        if deflation is not None and self._head.accepts_gzip:
            framed_message = await deflation.deflated(framed_message)
        connection, stream = self._connection, self._stream
        if self.is_over:
            raise HungUp
        try:
            connection.engine.data(stream, framed_message)
        except StreamGone:
            raise HungUp from None
        connection.sent()
        if len(framed_message) > _MOST_QUEUED or connection.engine.queued(stream) > _MOST_QUEUED:
            self._writable = asyncio.get_running_loop().create_future()
            connection.tell_when_flushed(self)
            await self._writable

    def write_now(self, message: bytes) -> bool:
        """Send a message that nobody has to wait for.

        It is called with a model's response, so a client that is gone is no error here.

        Returns:
            False for one that is compressed, that the client has no room for, or that cannot be sent.
        """
        connection, stream = self._connection, self._stream
        if self.is_over or (connection.port.deflation is not None and self._head.accepts_gzip):
            return False
        engine = connection.engine
        if engine.queued(stream) + len(message) > _MOST_QUEUED:
            return False
        try:
            engine.data(stream, framed((message,)))
        except StreamGone:
            return False
        connection.sent()
        return True

    def offer_to(self, receive: Callable[[Body], bool]) -> None:
        """Have messages that come while `read` waits for one taken by `receive`, unless it refuses them."""
        self._receive = receive

    def on_flushed(self) -> None:
        writable = self._writable
        if writable is None:
            return
        if not self.is_over and self._connection.engine.queued(self._stream) > _MOST_QUEUED:
            self._connection.tell_when_flushed(self)
            return
        self._writable = None
        if not writable.done():
            writable.set_result(None)

    # What admission calls, while a message waits for it.

    @property
    def held(self) -> int:
        """Bytes of its own that are counted."""
        return self._held

    def on_room(self) -> None:
        """Let the message come."""
        self._hold(self._wanted)
        self._wanted = 0
        self._return_room()

    def on_no_room(self) -> None:
        """Wait no longer."""
        wanted, self._wanted = self._wanted, 0
        self.give_up(*status_of(self._connection.port.admission.refusal(wanted)))

    # Inside.

    def _taken(self, byte_size: int) -> None:
        self._untaken += byte_size
        self._return_room()

    def _on_message(self, flag: int, body: Body) -> None:
        self._check_size(len(body))
        self._end_wait()
        if flag:
            self._check_coding(flag)
        elif self._receive is not None and self._is_waiting() and self._receive(body):
            return
        self._messages.append((flag, body))
        self._wake()

    def _on_end(self) -> None:
        self._wake()

    def _awaited(self) -> object:
        reader = self._reader
        if self._messages or self._wanted or reader is None or reader.is_between:
            return None
        return reader.received

    def _is_waiting(self) -> bool:
        """Nothing is there that `read`, which is called, could return."""
        return self._readable is not None and not self._readable.done()

    def _wake(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def _over(self) -> None:
        super()._over()
        self._messages.clear()
        self._receive = None
        self._end_wait()
        self._return_room()
        self._wake()

    def _abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _not_admitted(self, byte_size: int) -> None:
        self._wanted = byte_size
        self._connection.port.admission.wait(self)

    def _end_wait(self) -> None:
        if self._wanted:
            self._wanted = 0
            self._connection.port.admission.leave(self)

    def _return_room(self) -> None:
        if self._messages or self._wanted:
            return
        untaken, self._untaken = self._untaken, 0
        if untaken:
            self._connection.consumed(self._stream, untaken)
            self._connection.flush_soon()

    def _send_headers(self) -> None:
        connection = self._connection
        is_compressed = connection.port.deflation is not None and self._head.accepts_gzip
        try:
            connection.engine.headers(self._stream, GZIP_HEADERS if is_compressed else RESPONSE_HEADERS)
        except StreamGone:  # it was reset in the same read, of which this call is told next
            return
        self._has_headers = True
        connection.sent()

    async def _run(self) -> None:
        try:
            await self._serve(self)
        except asyncio.CancelledError:
            raise
        except HungUp:
            return
        except DecodeError:
            self.fail(Internal("Unable to parse request"))
        except TritonError as exc:
            self.fail(exc.with_traceback(None))
        except Exception as exc:
            self.fail(as_triton_error(exc, self._head.path))
        else:
            self._finish()

    def _finish(self) -> None:
        if self.is_over:
            return
        self._over()
        try:
            self._connection.engine.trailers(self._stream, OK_TRAILERS)
        except StreamGone:
            return
        self._end_early()
        self._connection.sent()
