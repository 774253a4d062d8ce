"""One HTTP/1.1 connection: requests out, answers back in their order.

One request of a connection runs at a time; the next ones wait as bytes in the kernel, because the socket is
not read meanwhile. That is also the back-pressure towards the client: nothing is read while its last answer
is still being written. The states that a connection goes through are in `states`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from tritonpy.admission import Admission
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.connection.access_log import AccessLog
from tritonpy.frontends.http.connection.answering import Handler, HttpConnection
from tritonpy.frontends.http.connection.closing import HalfClosed, LingeringClose, UnreadWatch
from tritonpy.frontends.http.connection.eviction import QuietOrder
from tritonpy.frontends.http.connection.limits import check_size
from tritonpy.frontends.http.connection.message import HttpRequest, Refused, refusal, refusal_of
from tritonpy.frontends.http.connection.reader import RequestReader
from tritonpy.frontends.http.connection.states import ENDED, IDLE, OPEN, RUNNING, STARTING, Answering, Reading
from tritonpy.frontends.sockets import end_sending, has_unread


@dataclass(frozen=True, slots=True)
class Port:
    """A listening port: what all its connections share; each only refers to it.

    Attributes:
        handler: answers requests.
        admission: counts the bytes of requests that are held.
        json_limit: the largest body that is not binary; 0 where no request has a body.
        scratch: where small reads land.
        on_open, on_close: keep the server's list of connections.
        forwarding: which headers are kept as they were written; None for none.
        access_log: where answers are noted; None for nowhere.
        is_tls: bytes are encrypted.
        quiet_order: is told when a connection that was found busy has been answered.
        unread: notices clients that go away while they are not read.
    """

    handler: Handler
    admission: Admission
    json_limit: int
    scratch: memoryview
    on_open: Callable[[HttpProtocol], None]
    on_close: Callable[[HttpProtocol], None]
    forwarding: HeaderForwarding | None = None
    access_log: AccessLog | None = None
    is_tls: bool = False
    quiet_order: QuietOrder[HttpProtocol] = field(default_factory=QuietOrder)
    unread: UnreadWatch = field(default_factory=UnreadWatch)


class HttpProtocol(HttpConnection, asyncio.BufferedProtocol):
    """A client's connection; on the loop only. Satisfies `reader.Receiver` and `admission.Waiter`.

    Args:
        port: where the client came in.
    """

    __slots__ = (
        "_answering",
        "_half_closed",
        "_handler",
        "_lingering",
        "_port",
        "_reader",
        "_reading",
        "_refusal",
        "_scratch",
        "_waiting",
    )

    def __init__(self, port: Port) -> None:
        super().__init__()
        self._port = port
        self._handler = port.handler
        self._scratch = port.scratch
        self._reader = RequestReader(self, port.admission, port.json_limit, port.forwarding)
        self._reading = OPEN
        self._answering = IDLE
        self._waiting: deque[HttpRequest] | None = None
        self._refusal = b""
        self._half_closed: HalfClosed | None = None
        self._lingering: LingeringClose | None = None

    # What the server calls.

    def drain(self) -> None:
        """Close after the current answer, or now when nothing is under way.

        A request that has arrived but was not read is answered: closed over it, the connection would be
        reset, and its client could not know whether it was executed.
        """
        self._is_draining = True
        if self._lingering is not None:
            self._lingering.hurry()
        if self._current is None and not self._reader.is_mid_message and not has_unread(self._transport):
            if not self._port.is_tls:
                end_sending(self._transport)
            self._close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def progress(self) -> object:
        """A value that changes as the client sends or takes the bytes that are waited for; None for none."""
        reader, transport = self._reader, self._transport
        if transport is None:
            return None
        if self._is_write_paused:
            return "answer", transport.get_write_buffer_size()
        if not reader.is_mid_message or self._reading is Reading.PAUSED or self._reading is Reading.FULL:
            return None
        # Headers must be complete in time, however they trickle in; of a body some bytes must come.
        return "request", reader.number, reader.received

    def idle_mark(self) -> object:
        """A value that changes with each request; None while one is sent or answered."""
        is_over = self._reading in (Reading.LINGERING, Reading.LOST)
        if is_over or self._current is not None or self._reader.is_mid_message:
            return None
        return "idle", self._reader.number

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
        port, transport = self._port, self._transport
        self._transport = self.trace = None
        self._reading = Reading.LOST
        if transport is not None:
            port.unread.discard(transport)
        port.on_close(self)
        port.admission.leave(self)
        self._reader.close()
        self._drop_waiting()
        if self._half_closed is not None:
            self._half_closed.stop()
        if self._stream is not None:
            self._stream.lose()
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def eof_received(self) -> bool:
        """Nothing more comes: the client waits for its answer, or is gone, surely if that is a stream."""
        if self._current is None or self._stream is not None or self._port.is_tls or self._transport is None:
            return False
        self._reading = ENDED
        self._ask_whether_it_waits(self._transport, self._current)
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes: the rest of a large body, or the scratch buffer."""
        return self._scratch if self._reader.view is None else self._reader.rest

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        reader = self._reader
        if self._reading is not OPEN and self._reading in (Reading.REFUSED, Reading.LINGERING, Reading.LOST):
            if self._lingering is not None:
                self._lingering.has_sent = True
        elif reader.view is not None:
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
        if self._answering is Answering.CLOSING:
            self._close()
        else:
            self._next()

    # What the reader calls.

    def on_request(self, request: HttpRequest) -> None:
        """Run a request, now or when those before it are answered."""
        if self._answering is IDLE and self._reading is OPEN and not (self._waiting or self._is_write_paused):
            self._run(request)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(request)
        if self._reading is OPEN:
            self._stop_reading(Reading.PAUSED)

    def on_expectation(self, request: HttpRequest) -> None:
        """Tell a client to send its body, or refuse the request without it."""
        objection = self._handler.objection(request, False)
        if objection is not None:
            raise Refused(objection)
        self._ask_for_body()

    def on_large_body(self, request: HttpRequest, byte_size: int) -> None:
        """Refuse a body over the limit unless it is binary and its request is answered at all."""
        objection = self._handler.objection(request, False)
        if objection is not None:
            raise Refused(objection)
        check_size(request.headers, byte_size, self._port.json_limit)

    def on_refusal(self, response: bytes) -> None:
        """Answer what is not taken, after the requests before it, and close."""
        self._port.admission.leave(self)
        self._reader.discard()
        if self._current is not None or self._waiting:
            self._refusal = response
            if self._reading is not ENDED:
                self._stop_reading(Reading.REFUSED)
        elif self._answering is not Answering.CLOSING:
            self._refuse(response)

    def on_lack_of_room(self) -> None:
        """Read no more until others have been answered, or it takes too long."""
        if self._reading is not Reading.FULL and self._port.admission.held > self.held:
            self._port.admission.wait(self)
            self._stop_reading(Reading.FULL)

    # What the admission calls.

    @property
    def held(self) -> int:
        """The bytes of this connection's requests."""
        current = self._current.held if self._current is not None else 0
        return current + self._reader.held + sum(request.held for request in self._waiting or ())

    def on_room(self) -> None:
        """Go on reading."""
        self._reading = Reading.PAUSED
        self._next()

    def on_no_room(self) -> None:
        """Refuse what has arrived meanwhile."""
        size = self._reader.announced or sum(len(request.body) for request in self._waiting or ())
        response = refusal_of(self._port.admission.refusal(size))
        self._drop_waiting()
        self.on_refusal(response)

    # Inside.

    def _run(self, request: HttpRequest) -> None:
        self._current = request
        self._answering = STARTING
        log = self._port.access_log
        self._is_special = log is not None or request.is_http_1_0
        if log is not None and self._transport is not None:
            self._note = log.begin(self._transport.get_extra_info("peername"), request)
            self.request_id = ""
        self._handler(request, self)
        if self._answering is STARTING:
            self._answering = RUNNING

    def _finish(self, current: HttpRequest) -> None:
        """The current request is answered: it is the next one's turn, unless it was the last."""
        if self.trace is not None:
            if self._stream is None:
                self.trace.report_activity("HTTP_SEND_END")
            self.trace = None
        self._on_lost = self._stream = self._current = None
        before, self._answering = self._answering, IDLE
        if self._port.quiet_order.busy:
            self._port.quiet_order.answered(self)
        if not current.keep_alive or self._is_draining or self._reading is ENDED:
            self._close()
        elif before is RUNNING and (self._reading is not OPEN or self._reader.is_awaited):
            self._next()
        self._port.admission.release(current.held)

    def _next(self) -> None:
        """Run what was pipelined, then read on, or say why not."""
        if self._reading is Reading.FULL:
            return
        waiting = self._waiting
        while waiting and self._answering is IDLE and not self._is_write_paused:
            self._run(waiting.popleft())
        if waiting or self._answering is Answering.CLOSING or self._transport is None:
            return
        if self._reading is Reading.REFUSED and self._answering is IDLE:
            self._refuse(self._refusal)
        elif self._reading is Reading.PAUSED:
            self._reading = OPEN
            self._port.unread.discard(self._transport)
            self._transport.resume_reading()
        self._ask_for_body()

    def _stop_reading(self, why: Reading) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._reading is OPEN and not transport.is_closing():
            transport.pause_reading()
            self._port.unread.add(transport, self._on_end)
        self._reading = why

    def _on_end(self, is_gone: bool) -> None:
        """The client has ended a connection that is not read; it may wait for answers to what it has sent."""
        current, transport = self._current, self._transport
        if is_gone or self._port.is_tls:
            self.abort()
            return
        is_between = self._stream is None and not self._is_write_paused  # one answer and the next
        if is_between and self._half_closed is None and current is not None and transport is not None:
            self._ask_whether_it_waits(transport, current)

    def _refuse(self, response: bytes) -> None:
        """Answer what was not taken, and close when the client has had time to read it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._port.access_log is not None:
            peer = transport.get_extra_info("peername")
            self._port.access_log.begin(peer, None).end(response, len(response))
        transport.write(response)
        if self._reading is not OPEN:
            self._port.unread.discard(transport)
            transport.resume_reading()
        self._reading = Reading.LINGERING
        self._lingering = LingeringClose(transport)

    def _ask_for_body(self) -> None:
        """Tell a client to send its body, when all before it is answered and there is room for it."""
        reader, is_next = self._reader, self._answering is IDLE and not self._waiting
        if reader.is_awaited and is_next and self._reading is OPEN and self._transport is not None:
            reader.is_awaited = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _ask_whether_it_waits(self, transport: asyncio.Transport, current: HttpRequest) -> None:
        if self._half_closed is not None:
            self._half_closed.stop()
        self._half_closed = HalfClosed(transport, not current.is_http_1_0)

    def _drop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        self._port.admission.release(sum(request.held for request in waiting or ()))

    def _close(self) -> None:
        """Close when all is written: TLS would give a slow client little time for it."""
        self._answering = Answering.CLOSING
        if self._transport is not None and not (self._port.is_tls and self._is_write_paused):
            self._transport.close()
