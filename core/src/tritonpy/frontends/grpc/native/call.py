"""A call as its connection sees it, and what all kinds of calls do alike."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tritonpy.admission import Admission
from tritonpy.errors import TritonError
from tritonpy.frontends.grpc.compression import MessageInflation
from tritonpy.frontends.grpc.errors import as_triton_error, status_of
from tritonpy.frontends.grpc.native.compression import MessageDeflation
from tritonpy.frontends.grpc.native.deadlines import Deadlines
from tritonpy.frontends.grpc.native.engine import Engine, ErrorCode, StreamGone
from tritonpy.frontends.grpc.native.framing import Body, BrokenFraming, MessageReader
from tritonpy.frontends.grpc.native.metadata import (
    GZIP_HEADERS,
    OK_TRAILERS,
    RESPONSE_HEADERS,
    RequestHead,
    status_headers,
)
from tritonpy.frontends.grpc.status import Status

_log = logging.getLogger("tritonpy.grpc")

Refusal = tuple[Status, str]


class Refused(Exception):
    """A call can go no further; it ends with a status and a text.

    Args:
        status: the code.
        text: the details.
    """

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(slots=True, kw_only=True)
class CallPort:
    """The state that all calls of a server share.

    Attributes:
        admission: counts the bytes of requests that are held.
        inflation: of messages that come compressed.
        deflation: of responses; None for none.
        deadlines: of all calls.
        max_message_byte_size: the largest message that is let in, compressed or not.
    """

    admission: Admission
    inflation: MessageInflation
    deflation: MessageDeflation | None
    deadlines: Deadlines
    max_message_byte_size: int


class CallConnection(Protocol):
    """The connection of a call, as the call sees it."""

    @property
    def engine(self) -> Engine:
        """Sends."""

    @property
    def port(self) -> CallPort:
        """The port that the connection came in at."""

    @property
    def is_blocked(self) -> bool:
        """The client takes nothing of what is written, and nothing is read from it meanwhile."""

    @property
    def taken_byte_size(self) -> int:
        """Bytes of all calls that have left, ever."""

    def consumed(self, stream: int, byte_size: int) -> None:
        """Bytes have been read; the client may send as many more."""

    def sent(self) -> None:
        """Something of a call was sent: have it leave at the end of this turn of the loop."""

    def sent_now(self) -> None:
        """Something of calls was sent, and nothing else follows at once: have it leave."""

    def flush_soon(self) -> None:
        """Have what was sent leave at the end of this turn of the loop."""

    def reset_when_sent(self, stream: int, code: int) -> None:
        """End a stream when all that was sent on it has left."""

    def tell_when_flushed(self, call: Call) -> None:
        """Call `on_flushed` once when bytes have left."""


class Call:
    """One stream of a connection; on the loop only.

    Args:
        connection: where it came in.
        stream: its number.
        head: what its headers say.

    Attributes:
        name: for the log.
        is_over: nothing more is sent for it.
        deadline: what `Deadlines` knows it by.
    """

    name: ClassVar[str] = "call"

    __slots__ = (
        "_connection",
        "_has_headers",
        "_head",
        "_held",
        "_is_half_closed",
        "_reader",
        "_stream",
        "deadline",
        "is_over",
    )

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead) -> None:
        self._connection = connection
        self._stream = stream
        self._head = head
        self._reader: MessageReader | None = None
        self._held = 0
        self._has_headers = False
        self._is_half_closed = False
        self.is_over = False
        self.deadline = 0.0

    # What the connection calls.

    def begin(self) -> None:
        """The headers have come."""

    def on_data(self, data: bytes, is_last: bool) -> None:
        """Bytes of the client's messages have come, and no more will if `is_last`."""
        self._is_half_closed = is_last
        if self.is_over:
            self._connection.consumed(self._stream, len(data))
            return
        try:
            self._read(data, is_last)
        except Refused as exc:
            self.give_up(exc.status, exc.text)
        except BrokenFraming as exc:
            self.give_up(Status.INTERNAL, str(exc))
        except MemoryError:
            self.give_up(Status.RESOURCE_EXHAUSTED, "there is no memory for the request's message")
        except Exception as exc:
            self.give_up(*status_of(as_triton_error(exc, self._head.path)))

    def on_deadline(self) -> None:
        """The client waits no longer."""
        self.deadline = 0.0
        self.give_up(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def on_gone(self) -> None:
        """The client wants no answer any more, or its connection is lost."""
        if not self.is_over:
            self._over()
            self._drop()

    def on_closed(self) -> None:
        """The stream is over: all that was sent has left, or never will."""
        self.on_gone()

    def progress(self) -> object:
        """A value that changes as the client sends its message or takes the answer; None without either."""
        connection = self._connection
        if not self.is_over:
            awaited = None if connection.is_blocked else self._awaited()
            return None if awaited is None else ("message", awaited)
        queued = connection.engine.queued(self._stream)
        if not queued:
            return None
        # An answer that the client has room for waits behind others that are being taken.
        has_room = connection.engine.window(self._stream) > 0
        return "answer", queued, connection.taken_byte_size if has_room else None

    def time_out(self) -> None:
        """Do not wait for the client any longer."""
        if self.is_over:
            self._connection.engine.reset(self._stream, ErrorCode.CANCEL)
            self._connection.flush_soon()
        else:
            self.give_up(Status.DEADLINE_EXCEEDED, "The request's message did not arrive in time")

    def on_flushed(self) -> None:
        """Bytes have left; called while the call is among those that wait for it."""

    # What ends a call.

    def give_up(self, status: Status, text: str) -> None:
        """End the call with a status, and cancel what it has begun."""
        if not self.is_over:
            self._drop()
            self.refuse(status, text)

    def refuse(self, status: Status, text: str) -> None:
        """End the call with a status, and read no more of it."""
        if self.is_over:
            return
        self._over()
        connection, stream = self._connection, self._stream
        try:
            headers = status_headers(status, text)
            if self._has_headers:
                connection.engine.trailers(stream, headers)
            else:
                connection.engine.headers(stream, (*RESPONSE_HEADERS, *headers), True)
        except StreamGone:
            return
        self._end_early()
        connection.sent()

    def fail(self, error: TritonError) -> None:
        """End the call with the status of an error."""
        self.refuse(*status_of(error))

    # What kinds of calls do in their own way.

    def _read(self, data: bytes, is_last: bool) -> None:
        """Cut bytes of the client into messages, and say when the last one has come.

        Raises:
            Refused: the call can go no further.
            BrokenFraming: the bytes are no messages.
        """
        reader = self._reader
        if reader is None:
            reader = self._reader = MessageReader(self._announced)
        if data:
            try:
                for flag, body in reader.feed(data):
                    self._release()
                    self._on_message(flag, body)
            finally:  # else a client that is refused often would have no room left
                self._taken(len(data))
        if is_last and not self.is_over:
            if not reader.is_between:
                raise BrokenFraming("the client's last message is incomplete")
            self._on_end()

    def _announced(self, byte_size: int) -> None:
        """A message of so many bytes begins to arrive."""
        self._check_size(byte_size)
        if self._connection.port.admission.admits(byte_size):
            self._hold(byte_size)
        else:
            self._not_admitted(byte_size)

    def _not_admitted(self, byte_size: int) -> None:
        """Too many bytes of requests are held to take a message of so many more."""
        raise self._connection.port.admission.refusal(byte_size)

    def _taken(self, byte_size: int) -> None:
        """Bytes have been read; the client may send as many more."""
        self._connection.consumed(self._stream, byte_size)

    def _on_message(self, flag: int, body: Body) -> None:
        """A message is complete."""
        raise NotImplementedError

    def _on_end(self) -> None:
        """The client sends no more."""
        raise NotImplementedError

    def _awaited(self) -> object:
        """A value that changes as the client sends what the call needs to go on; None when nothing is."""
        return None

    def _abandon(self) -> None:
        """There is nobody to answer: give up what the call has begun."""

    # Inside.

    def _drop(self) -> None:
        try:
            self._abandon()
        except Exception:  # else it would end all calls of the connection, or all that have a deadline
            _log.exception("%s could not be cancelled", self._head.path)

    def _check_size(self, byte_size: int) -> None:
        most = self._connection.port.max_message_byte_size
        if byte_size > most:
            raise Refused(
                Status.RESOURCE_EXHAUSTED, f"Received message larger than max ({byte_size} vs. {most})"
            )

    def _hold(self, byte_size: int) -> None:
        self._held += byte_size
        self._connection.port.admission.hold(byte_size)

    def _check_coding(self, flag: int) -> None:
        if flag and self._head.coding in (b"", b"identity"):
            raise Refused(Status.INTERNAL, "Compressed message received without a grpc-encoding")

    def _succeed(self, message: bytes) -> None:
        """Answer with one framed message, and end the call."""
        engine, stream = self._connection.engine, self._stream
        self._over()
        try:
            engine.headers(stream, GZIP_HEADERS if message[0] else RESPONSE_HEADERS)
            engine.data(stream, message)
            engine.trailers(stream, OK_TRAILERS)
        except StreamGone:
            return
        if not self._is_half_closed:
            self._end_early()
        self._connection.sent()

    def _over(self) -> None:
        self.is_over = True
        if self._held:
            self._release()
        self._reader = None  # which knows the call, too
        if self.deadline:
            self._connection.port.deadlines.discard(self, self.deadline)

    def _release(self) -> None:
        held, self._held = self._held, 0
        if held:
            self._connection.port.admission.release(held)

    def _end_early(self) -> None:
        """Have a client that still sends told, behind the answer, that nobody reads it."""
        if not self._is_half_closed:
            self._connection.reset_when_sent(self._stream, ErrorCode.NO_ERROR)


class RefusedCall(Call):
    """A call that ends before anything of it is read."""

    __slots__ = ("_refusal",)

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, refusal: Refusal) -> None:
        super().__init__(connection, stream, head)
        self._refusal = refusal

    def begin(self) -> None:
        """Tell the client why."""
        self.refuse(*self._refusal)
