"""One `ModelStreamInfer` call: requests in, responses out, both in the order that clients rely on.

Requests to models that answer exactly once form a line: their responses leave in the order the requests
came, refusals included. Requests to decoupled models stand outside of it: their responses leave as they are
produced, before or between the others.

A sink is called on the loop and must not wait, so a slow client cannot hold up the loop. No further request
is read from the stream while its open requests exceed a limit or half of another one waits to be sent, which
is enough where requests and responses come in pairs. A decoupled model may still answer faster than its
client reads: beyond the limit its sender waits. A client that takes nothing for long then has all open
requests of the stream cancelled, what waits is dropped and the stream ends UNAVAILABLE. Memory stays bounded,
and the other streams, and the other requests of the same batch, never notice.

Two tasks read and write. Where the transport has a shortcut, messages that need not wait pass them by: a
request is taken in the read that brings it, a response is sent where its model's answer is delivered.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tritonpy.admission import Admission
from tritonpy.dataplane import Dataplane
from tritonpy.errors import Internal, TritonError, Unavailable
from tritonpy.flow import Backlog, FlowLimits
from tritonpy.frontends.grpc.convert import parse_infer_request, to_infer_request
from tritonpy.frontends.grpc.encoder import (
    ResponseEncoder,
    encode_empty_final,
    encode_failure,
    encode_refusal,
)
from tritonpy.frontends.grpc.errors import as_triton_error
from tritonpy.frontends.grpc.forwarding import Metadata
from tritonpy.frontends.grpc.tracing import TracedMessage, begin_trace
from tritonpy.frontends.outputs import UNTREATED, References, Treatments, of_model
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.tracing.tracing import Tracing

_log = logging.getLogger("tritonpy.grpc")

_REQUEST_OVERHEAD_BYTES = 2048
"""What an open request costs beside its message."""

STOPPING = "GRPC server is shutting down and has stopped accepting new requests."


Read = Callable[[], Awaitable[bytes | memoryview | None]]
"""Gives the next serialized request; None when the client sends no more."""
Write = Callable[[bytes], Awaitable[None]]
"""Sends a serialized response; returns when the next one may follow."""


class Shortcut(Protocol):
    """A transport that can do without a turn of the loop for each message. Nothing here raises."""

    def write_now(self, message: bytes) -> bool:
        """Send a serialized response while none is being written; False when it has to be written instead."""

    def offer_to(self, receive: Callable[[bytes | memoryview], bool]) -> None:
        """Offer serialized requests to `receive` while one is waited for; those that it refuses are read."""


@dataclass(frozen=True, slots=True)
class StreamPort:
    """What all streams of a server share.

    Attributes:
        dataplane: takes the requests.
        encoder: writes the responses.
        references: what requests may name beside their own bytes.
        admission: counts the bytes of open requests of all calls; those that it does not admit are refused.
        tracing: says which requests are traced.
        max_held_byte_size: bytes of requests that may be open in one stream. One that finds none is let in
            whatever its size.
        flow_limits: how far a client may fall behind.
    """

    dataplane: Dataplane
    encoder: ResponseEncoder
    references: References
    admission: Admission
    tracing: Tracing
    max_held_byte_size: int
    flow_limits: FlowLimits


class InferStream:
    """The state of one call; on the loop only.

    Args:
        port: where the call came in.
        ends_on_error: the first error that comes from running a request ends the call with that error's
            status, instead of travelling as a message.
        forwarding: gives parameters that every request of the stream gets from its metadata, or raises.
        metadata: what the client sent along, which may bring a trace.
    """

    def __init__(
        self,
        port: StreamPort,
        *,
        ends_on_error: bool = False,
        forwarding: Callable[[], Mapping[str, ParameterValue]] | None = None,
        metadata: Metadata = (),
    ) -> None:
        self._port = port
        self._ends_on_error = ends_on_error
        self._forwarding = forwarding
        self._metadata = metadata
        self._queue: deque[bytes | TritonError] = deque()
        self._backlog = Backlog(port.flow_limits, self._give_up)
        self._open_byte_size = 0
        self._line: deque[_StreamSink] = deque()
        # Only weakly: a request that its backend dropped must be able to die, which is how it gets an answer.
        self._open: dict[_StreamSink, weakref.ref[InferRequest]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._is_half_closed = False
        self._is_stopping = False
        self._is_closed = False
        self._shortcut: Shortcut | None = None

    async def run(self, read: Read, write: Write, shortcut: Shortcut | None = None) -> None:
        """Serve the call until the client has half-closed it and everything is answered.

        Args:
            read: gives the client's messages.
            write: sends one to the client.
            shortcut: of the transport, if it has one.

        Raises:
            TritonError: what the call ends with instead of OK.
        """
        self._shortcut = shortcut
        if shortcut is not None:
            shortcut.offer_to(self._receive_now)
        self._reader = asyncio.get_running_loop().create_task(self._receive_all(read))
        try:
            await self._send_all(write)
        finally:  # also when the client went away, which cancels this coroutine
            self._reader.cancel()
            self._close()

    def stop(self) -> None:
        """The server is going away: read nothing more, answer what was accepted, then end UNAVAILABLE."""
        self._is_stopping = True
        if self._reader is not None:
            self._reader.cancel()
        self._wake()

    # Receiving

    async def _receive_all(self, read: Read) -> None:
        try:
            while (body := await read()) is not None:
                await self._wait_for_room()  # which those that were received meanwhile may have taken
                if self._is_closed:
                    return
                self._receive(body)
                del body  # a stream that waits for the next one holds none
                await self._wait_for_room()
            self._is_half_closed = True
        except Exception as exc:
            self._queue.append(as_triton_error(exc, "reading from a stream"))
        self._wake()

    async def _wait_for_room(self) -> None:
        while not self._has_room():
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _receive_now(self, body: bytes | memoryview) -> bool:
        """Take one serialized request that nobody has read, if there is room for it."""
        if self._is_closed or self._is_stopping or not self._has_room():
            return False
        self._receive(body)
        return True

    def _receive(self, body: bytes | memoryview) -> None:
        """Take one serialized request; whatever is wrong with it becomes a response."""
        port, arrival_ns = self._port, time.monotonic_ns()
        sink = _StreamSink(self, len(body) + _REQUEST_OVERHEAD_BYTES)
        self._open_byte_size += sink.byte_size
        self._line.append(sink)
        try:
            message, raw_contents = parse_infer_request(body)
            sink.request_id = message.id
            model = port.dataplane.find(message.model_name, message.model_version)
            if model.is_decoupled:
                sink.is_decoupled = True
                self._line.pop()
            self._admit(sink)
            request, wants_empty_final, treatments = to_infer_request(message, raw_contents, port.references)
            if treatments:
                sink.treatments = of_model(treatments, model)
            if self._forwarding is not None:
                request.parameters = {**request.parameters, **self._forwarding()}
            request.arrival_ns = arrival_ns
            if port.tracing.is_on:
                request.ticket.trace = begin_trace(
                    port.tracing, self._metadata, request.model_name, arrival_ns
                )
            if wants_empty_final:
                sink.empty_final = encode_empty_final(request.model_name, request.model_version, request.id)
            self._open[sink] = weakref.ref(request)
            model.infer(request, sink)
        except Exception as exc:
            # The error gets no name here: its traceback leads to this frame, which holds the whole request.
            where = f"ModelStreamInfer of request '{sink.request_id}'"
            sink.complete(encode_refusal(as_triton_error(exc, where, sink.request_id), sink.request_id))

    def _admit(self, sink: _StreamSink) -> None:
        admission = self._port.admission
        if not admission.admits(sink.byte_size):
            raise admission.refusal(sink.byte_size)
        admission.hold(sink.byte_size)
        sink.is_admitted = True

    # What sinks call

    def encode(
        self,
        request: InferRequest,
        response: InferResponse | None,
        final: bool,
        treatments: Treatments = UNTREATED,
    ) -> bytes | TritonError:
        """The message for one response, or the error that the call must end with."""
        if response is None:
            error: TritonError = Internal(f"{request.label}model '{request.model_name}' sent no response")
        elif response.error is not None:
            error = response.error
        else:
            try:
                return self._port.encoder.encode_streamed(request, response, final, treatments)
            except Exception as exc:
                where = f"{request.label}writing a response of model '{request.model_name}'"
                error = as_triton_error(exc, where, request.id)
        return error if self._ends_on_error else encode_failure(error, request, final)

    def hold(self, item: bytes | TritonError, streamed: InferRequest | None) -> bool:
        """Count a response that will wait; False when it cannot, because the stream is over or too full.

        Args:
            item: the response.
            streamed: the request, if its model may send more and can be told to wait.
        """
        if self._is_closed:
            return False
        if not isinstance(item, bytes):
            return True
        return self._backlog.add(len(item), streamed.response_flow if streamed is not None else None)

    def send(self, item: bytes | TritonError) -> None:
        """Send a response that was counted, or queue it behind those that wait."""
        shortcut = self._shortcut
        if shortcut and self._is_idle() and type(item) is bytes and shortcut.write_now(item):
            self._backlog.take(len(item))
            self._make_room()  # it may have waited in the line
            return
        self._queue.append(item)
        self._wake()

    def release(self) -> None:
        """Queue what the head of the line has, and let the next ones move up behind complete ones."""
        line = self._line
        while line:
            first = line[0]
            for item in first.held:
                self.send(item)
            first.held.clear()
            if not first.is_complete:
                return
            line.popleft()

    def finished(self, sink: _StreamSink) -> None:
        """A request has had its last response."""
        self._open.pop(sink, None)
        self._open_byte_size -= sink.byte_size
        if sink.is_admitted:
            self._port.admission.release(sink.byte_size)
        self._make_room()
        if not self._open and (self._is_half_closed or self._is_stopping):
            self._wake()

    # Sending

    async def _send_all(self, write: Write) -> None:
        queue = self._queue
        while True:
            while queue:
                item = queue.popleft()
                if isinstance(item, TritonError):
                    raise item.with_traceback(None)
                if type(item) is TracedMessage:
                    await item.leave(write)
                else:
                    await write(item)
                if not self._is_closed:
                    self._backlog.take(len(item))
                self._make_room()
                del item  # nor does a stream hold the last response
            if not self._open:
                if self._is_half_closed:
                    return
                if self._is_stopping:
                    raise Unavailable(STOPPING)
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
            self._wakeup = None

    def _is_idle(self) -> bool:
        """Nothing waits to be written, or is being written."""
        return self._wakeup is not None and not self._queue

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done() and self._has_room():
            self._room.set_result(None)

    def _has_room(self) -> bool:
        port = self._port
        return (
            self._open_byte_size <= port.max_held_byte_size
            and self._backlog.byte_size <= port.flow_limits.max_byte_size // 2
        )

    def _give_up(self, reason: str) -> None:
        """The client does not take what it asked for."""
        _log.warning("a stream is ended: %s", reason)
        self._close(is_stalled=True)
        self._queue.append(Unavailable(reason))
        self._wake()

    def _close(self, *, is_stalled: bool = False) -> None:
        """Nobody reads any more: cancel what is open, forget what waits."""
        self._is_closed = True
        self._shortcut = None
        self._backlog.close()
        self._queue.clear()
        self._line.clear()
        opened, self._open = self._open, {}
        for reference in opened.values():
            request = reference()
            if request is not None and is_stalled:
                request.give_up()
            elif request is not None:
                _log.debug(
                    "Cancellation notification received for ModelStreamInferHandler", extra=request.about
                )
                request.cancel()


class _StreamSink:
    """Takes the responses of one request; satisfies `ResponseSink`.

    Attributes:
        byte_size: what the request holds in memory.
        request_id: the client's.
        held: responses that wait for their turn in the line.
        is_decoupled: the request stands outside of the line.
        has_answered: there was a response.
        is_admitted: its bytes are counted among those of all calls.
        is_complete: nothing follows.
        treatments: what is wanted with outputs beside their bytes.
        empty_final: what is sent for a final flag that comes alone, if the client wants that.
    """

    __slots__ = (
        "_stream",
        "byte_size",
        "empty_final",
        "has_answered",
        "held",
        "is_admitted",
        "is_complete",
        "is_decoupled",
        "request_id",
        "treatments",
    )

    def __init__(self, stream: InferStream, byte_size: int) -> None:
        self._stream = stream
        self.byte_size = byte_size
        self.request_id = ""
        self.is_decoupled = False
        self.has_answered = False
        self.is_admitted = False
        self.is_complete = False
        self.empty_final: bytes | None = None
        self.treatments = UNTREATED
        self.held: list[bytes] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if self.is_complete:
            return
        if response is not None or not (self.is_decoupled or self.has_answered):
            item: bytes | TritonError | None = self._stream.encode(request, response, final, self.treatments)
        else:
            item = self.empty_final
        if request.ticket.trace is not None and isinstance(item, bytes):
            item = TracedMessage.of(item, request.ticket.trace)
        if final:
            self.complete(item)
        elif item is not None:
            self._pass(item, request if self.is_decoupled else None)

    def complete(self, item: bytes | TritonError | None) -> None:
        """Take the last response, if there is one."""
        if self.is_complete:
            return
        self.is_complete = True
        if item is not None:
            self._pass(item, None)
        elif not self.is_decoupled:
            self._stream.release()
        self._stream.finished(self)

    def _pass(self, item: bytes | TritonError, streamed: InferRequest | None) -> None:
        self.has_answered = True
        stream = self._stream
        if not stream.hold(item, streamed):
            return
        if self.is_decoupled or isinstance(item, TritonError):  # the end of the call waits for nobody
            stream.send(item)
        else:
            self.held.append(item)
            stream.release()
