"""One HTTP/1.1 connection: requests out, answers back in their order.

One request of a connection runs at a time; the next ones wait as bytes in the kernel, because the socket is
not read meanwhile. That is also the back-pressure towards the client: nothing is read while its last answer
is still being written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from tritonpy.frontends.http.connection.access_log import Note
from tritonpy.frontends.http.connection.half_closed import HalfClosed
from tritonpy.frontends.http.connection.lingering_close import Parting
from tritonpy.frontends.http.connection.message import (
    Chunk,
    HttpRequest,
    Refused,
    in_http_1_0,
    refusal,
    refusal_of,
    stream_head,
)
from tritonpy.frontends.http.connection.port import Handler, Port
from tritonpy.frontends.http.connection.reader import RequestReader
from tritonpy.frontends.http.connection.stream import ResponseStream
from tritonpy.frontends.sockets import end_sending, has_unread
from tritonpy.request_trace import RequestTrace

_JOIN_BELOW = 64 * 1024


class HttpConnection(asyncio.BufferedProtocol):
    """A client's connection; on the loop only. Satisfies `reader.Receiver` and `admission.Waiter`.

    Args:
        port: where the client came in.

    Attributes:
        request_id: of the current request, for the access log; set by who reads the body.
        trace: takes notes of the current request; see `follow`.
    """

    __slots__ = (
        "_admission",
        "_current",
        "_current_held",
        "_half_closed",
        "_handler",
        "_is_closing",
        "_is_dead",
        "_is_draining",
        "_is_read_paused",
        "_is_running",
        "_is_special",
        "_is_write_paused",
        "_lacks_room",
        "_note",
        "_on_lost",
        "_owes_continue",
        "_parting",
        "_port",
        "_probe",
        "_reader",
        "_refusal",
        "_scratch",
        "_stream",
        "_transport",
        "_waiting",
        "request_id",
        "trace",
    )

    def __init__(self, port: Port) -> None:
        self._port = port
        self._handler = port.handler
        self._admission = port.admission
        self._scratch = port.scratch
        self._reader = RequestReader(self, port.admission, port.json_limit, port.forwarding)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[HttpRequest, int]] | None = None
        self._current: HttpRequest | None = None
        self._current_held = 0
        self._is_special = False
        self._is_running = False
        self._refusal: bytes | None = None
        self._on_lost: Callable[[], None] | None = None
        self._stream: ResponseStream | None = None
        self._half_closed: HalfClosed | None = None
        self._probe: HalfClosed | None = None
        self._parting: Parting | None = None
        self._lacks_room: asyncio.TimerHandle | None = None
        self._owes_continue = False
        self._is_draining = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_dead = False
        self._note: Note | None = None
        self._is_closing = False
        self.request_id = ""
        self.trace: RequestTrace | None = None

    # What handlers call.

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Have `on_lost` called if the client goes away before its request is answered, now if it is gone."""
        if self._transport is None:
            on_lost()
        else:
            self._on_lost = on_lost

    def write(self, response: bytes) -> None:
        """Answer the current request with these bytes."""
        if self._current is None:
            return
        if self._is_special:
            response = self._specially(response, len(response))
        if self._transport is not None:
            self._transport.write(response)
        self._finish()

    def write_parts(self, head: bytes, parts: list[Chunk], size: int) -> None:
        """Answer the current request; large parts leave from where they are."""
        if self._current is None:
            return
        if self._is_special:
            head = self._specially(head, len(head) + size)
        if self._transport is not None:
            if size <= _JOIN_BELOW:
                self._transport.write(b"".join([head, *parts]))
            else:
                self._transport.writelines([head, *parts])
        self._finish()

    def start_stream(self, status: int, content_type: bytes, extra: Sequence[bytes] = ()) -> ResponseStream:
        """Answer the current request with a body that is written piece by piece.

        `watch` says when the client goes away before the stream has ended.
        """
        current = self._current
        is_chunked = current is not None and not current.is_http_1_0
        if current is not None and not is_chunked:
            current.keep_alive = False  # the end of the connection is that of the body
        head = stream_head(status, content_type, is_chunked, self.keep_alive, extra)
        if not is_chunked:
            head = in_http_1_0(head, False)
        self._stream = stream = ResponseStream(self._transport, head, is_chunked, self._end_stream)
        if self._is_write_paused:
            stream.pause()
        return stream

    @property
    def current(self) -> HttpRequest | None:
        """The request that is answered now."""
        return self._current

    def follow(self, trace: RequestTrace) -> None:
        """Note in a trace when the current request is answered; whoever starts a stream does that itself."""
        self.trace = trace
        self._is_special = True

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open after the current answer."""
        return self._current is not None and self._current.keep_alive and not self._is_draining

    # What the server calls.

    def drain(self) -> None:
        """Close after the current answer, or now when nothing is under way.

        A request that has arrived but was not read is answered: closed over it, the connection would be
        reset, and its client could not know whether it was executed.
        """
        self._is_draining = True
        if self._parting is not None:
            self._parting.hurry()
        if self._current is None and not self._reader.is_mid_message and not has_unread(self._transport):
            if not self._port.is_tls:
                end_sending(self._transport)
            self._close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def progress(self) -> object:
        """What changes as the client sends and takes bytes that are waited for; None when none are."""
        reader, transport = self._reader, self._transport
        if transport is None:
            return None
        if self._is_write_paused:
            return "answer", transport.get_write_buffer_size()
        if not reader.is_mid_message or self._is_read_paused:
            return None
        # Headers must be complete in time, however they trickle in; of a body some bytes must come.
        return "request", reader.number, reader.received

    def idle_mark(self) -> object:
        """What changes as the client asks something; None while it does, or is answered."""
        reader = self._reader
        if self._transport is None or self._current is not None or self._is_dead or reader.is_mid_message:
            return None
        return "idle", reader.number

    @property
    def is_quiet(self) -> bool:
        """Little is lost if the connection ends: no request is complete, or has got so far as its body."""
        reader = self._reader
        is_unasked = not reader.is_mid_message or reader.is_in_head
        return self._current is None and not self._waiting and not self._is_write_paused and is_unasked

    @property
    def has_asked(self) -> bool:
        """A request of this connection has been complete."""
        return self._reader.number > 1

    @property
    def peer(self) -> str:
        """The address of the client; "" if that is not known."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return peer[0] if peer else ""

    def restrict(self, handler: Handler) -> None:
        """Have requests answered by another handler from now on."""
        self._handler = handler

    def time_out(self) -> None:
        """End the connection: its client keeps us waiting, or says nothing."""
        if self._is_write_paused:
            self.abort()
        elif not self._reader.is_mid_message:
            self._close()
        else:
            self.on_refusal(refusal(408, "the request did not arrive in time", False))

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        # Answers leave at once instead of at the end of the loop's turn: there is one to a connection, so
        # nothing is gained by waiting, and the client has it while we still count. TLS takes a limit of 0 for
        # one that is reached while nothing is waiting.
        self._transport.set_write_buffer_limits(high=1 if self._port.is_tls else 0)
        self._port.on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._transport = None
        self._is_dead = True
        self.trace = None
        self._port.on_close(self)
        self._stop_waiting_for_room()
        self._reader.close()
        self._drop_waiting()
        self._port.unread.discard(self)
        for watch in (self._half_closed, self._probe):
            if watch is not None:
                watch.stop()
        if self._stream is not None:
            self._stream.lose()
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def eof_received(self) -> bool:
        """Nothing more comes: the client waits for its answer, or is gone, surely if that is a stream."""
        if self._current is None or self._stream is not None or self._port.is_tls or self._transport is None:
            return False
        self._half_closed = HalfClosed(self._transport, not self._current.is_http_1_0)
        return True

    def descriptor(self) -> int:
        """See `Unread`."""
        if self._transport is None or self._transport.is_closing():
            return -1
        connected = self._transport.get_extra_info("socket")
        return -1 if connected is None else int(connected.fileno())

    def on_end(self, is_gone: bool) -> None:
        """The client has ended a connection that is not read; it may wait for answers to what it has sent."""
        current, transport = self._current, self._transport
        if is_gone or self._port.is_tls:
            self.abort()
            return
        is_between = self._stream is None and not self._is_write_paused  # one answer and the next
        if is_between and self._probe is None and current is not None and transport is not None:
            self._probe = HalfClosed(transport, not current.is_http_1_0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of a large body, or the scratch buffer."""
        return self._scratch if self._reader.view is None else self._reader.rest

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._is_dead:
            if self._parting is not None:
                self._parting.has_sent = True
            return
        reader = self._reader
        if reader.view is not None:
            reader.body_arrived(nbytes)
        else:
            reader.feed(self._scratch[:nbytes])

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_write_paused = True
        if self._stream is not None:
            self._stream.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_write_paused = False
        self._port.quiet_order.answered(self)
        if self._stream is not None:
            self._stream.resume()
        if self._is_closing:
            self._close()
        else:
            self._next()

    # What the reader calls.

    def on_request(self, request: HttpRequest, held: int) -> None:
        """Run a request, now or when those before it are answered."""
        if self._current is None and not (self._waiting or self._is_write_paused or self._lacks_room):
            self._run(request, held)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((request, held))
        self._owes_continue = False
        self._pause_reading()

    def on_expectation(self, request: HttpRequest) -> None:
        """Tell a client to send its body, or what its answer is without it."""
        objection = self._handler.objection(request, False)
        if objection is not None:
            raise Refused(objection)
        self._owes_continue = True
        self._continue()

    def on_refusal(self, response: bytes) -> None:
        """Answer what is not taken, after whatever is being answered, and close."""
        self._stop_waiting_for_room()
        self._reader.discard()
        self._is_dead = True
        transport = self._transport
        if self._current is not None or self._waiting:
            self._refusal = response
            self._pause_reading()
        elif transport is not None:
            if self._port.access_log is not None:
                peer = transport.get_extra_info("peername")
                self._port.access_log.begin(peer, None).end(response, len(response))
            transport.write(response)
            if self._is_read_paused and not transport.is_closing():
                self._is_read_paused = False
                self._port.unread.discard(self)
                transport.resume_reading()
            self._parting = Parting(transport)

    def on_lack_of_room(self) -> None:
        """Read no more until others have been answered, or it takes too long."""
        if self._lacks_room is None and self._admission.held > self.held:
            loop = asyncio.get_running_loop()
            self._lacks_room = loop.call_later(self._admission.patience_s, self._refuse_for_room)
            self._admission.wait(self)
            self._pause_reading()

    # What the admission calls.

    @property
    def held(self) -> int:
        """The bytes of this connection's requests."""
        return self._current_held + self._reader.held + sum(held for _, held in self._waiting or ())

    def on_room(self) -> None:
        """Go on reading."""
        self._stop_waiting_for_room()
        self._next()

    # Inside.

    def _stop_waiting_for_room(self) -> None:
        if self._lacks_room is not None:
            self._lacks_room.cancel()
            self._lacks_room = None
            self._admission.leave(self)

    def _refuse_for_room(self) -> None:
        size = self._reader.announced or sum(len(request.body) for request, _ in self._waiting or ())
        error = self._admission.refusal(size)
        self._drop_waiting()
        self.on_refusal(refusal_of(error))

    def _drop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting:
            self._admission.release(sum(held for _, held in waiting))

    def _run(self, request: HttpRequest, held: int) -> None:
        self._current = request
        self._current_held = held
        log = self._port.access_log
        self._is_special = log is not None or request.is_http_1_0
        if log is not None and self._transport is not None:
            self._note = log.begin(self._transport.get_extra_info("peername"), request)
            self.request_id = ""
        self._handler(request, self)

    def _specially(self, response: bytes, byte_size: int) -> bytes:
        """Note an answer of so many bytes, and put its head into the words that its client knows."""
        if self.trace is not None and self._stream is None:
            self.trace.report_activity("HTTP_SEND_START")
        if self._note is not None:
            self._note.end(response, 0 if self._transport is None else byte_size, self.request_id)
            self._note = None
        if self._current is not None and self._current.is_http_1_0:
            return in_http_1_0(response, self.keep_alive)
        return response

    def _end_stream(self) -> None:
        stream = self._stream
        if self._is_special and stream is not None:
            self._specially(stream.head, len(stream.head) + stream.byte_size)
        self._finish()

    def _finish(self) -> None:
        """The current request is answered."""
        current = self._current
        if current is None:
            return
        if self.trace is not None:
            if self._stream is None:
                self.trace.report_activity("HTTP_SEND_END")
            self.trace = None
        self._on_lost = None
        self._stream = None
        held, self._current_held = self._current_held, 0
        close = not current.keep_alive or self._is_draining or self._half_closed is not None
        self._current = None
        if self._port.quiet_order.busy:
            self._port.quiet_order.answered(self)
        if close:
            self._close()
        elif (self._is_read_paused or self._owes_continue) and not self._is_running:
            self._next()
        self._admission.release(held)

    def _close(self) -> None:
        """Close when all is written: TLS would give a slow client only so much time for it."""
        self._is_closing = True
        if self._transport is not None and not (self._port.is_tls and self._is_write_paused):
            self._transport.close()

    def _next(self) -> None:
        """Run what was pipelined, then read on."""
        self._is_running = True  # an answer given at once comes back through _finish: loop, do not recurse
        while (
            self._waiting
            and self._current is None
            and not (self._is_write_paused or self._is_closing or self._lacks_room)
            and self._transport is not None
        ):
            self._run(*self._waiting.popleft())
        self._is_running = False
        if self._refusal is not None and self._current is None and not self._waiting:
            refusal, self._refusal = self._refusal, None
            self.on_refusal(refusal)
        elif self._is_read_paused and not self._waiting and self._lacks_room is None and not self._is_dead:
            self._is_read_paused = False
            self._port.unread.discard(self)
            if self._transport is not None:
                self._transport.resume_reading()
        self._continue()

    def _continue(self) -> None:
        """Tell a client to send its body, when all before it is answered and there is room for it."""
        if self._owes_continue and self._current is None and not self._waiting and self._lacks_room is None:
            self._owes_continue = False
            if self._transport is not None and not self._is_dead:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _pause_reading(self) -> None:
        if not self._is_read_paused and self._transport is not None:
            self._is_read_paused = True
            self._transport.pause_reading()
            self._port.unread.add(self)
