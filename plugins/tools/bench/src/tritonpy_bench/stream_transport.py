"""Requests over streams of gRPC (`ModelStreamInfer`), a request at a time on each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError
from ngh2 import events
from ngh2.exceptions import NGH2Error
from tritonpy.protos import messages

from tritonpy_bench.answers import Outputs, called
from tritonpy_bench.calls import Call, Place, looked_at
from tritonpy_bench.errors import BenchError
from tritonpy_bench.grpc_transport import (
    HEAD_BYTE_SIZE,
    NO_RESPONSE,
    Connection,
    GrpcTransport,
    request_headers,
)

_CANCEL = 8
_NEVER = 1 << 62
_ERROR_TAG = b"\n"  # of the field `error_message`
# The parameter of a response after which no other follows, as every protobuf library writes it.
_FINAL = b"triton_final_response\x12\x02\x08\x01"


class StreamTransport(GrpcTransport):
    """Satisfies `Transport`, with as many streams as there are calls at a time."""

    def __init__(
        self,
        place: Place,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
        reads: bool = False,
    ) -> None:
        super().__init__(place, timeout_s, metadata, reads)
        self._headers = request_headers(place, "ModelStreamInfer", metadata)
        self._idle: list[_Stream] = []

    async def open(self, count: int) -> None:
        await super().open(count)
        try:
            for number in range(len(self._idle), count):
                connection = self._connections[number % len(self._connections)]
                self._idle.append(_Stream(connection, self._idle, self._reads))
        except NGH2Error as error:
            raise BenchError(f"no stream can be opened at {self._place}: {error}") from None

    def send(self, request: bytes, call: Call) -> None:
        while self._idle:
            stream = self._idle.pop()
            if stream.send(request, call):
                return
        super().send(request, call)

    def _begin(self, connection: Connection, request: bytes, call: Call) -> None:
        try:
            stream = _Stream(connection, self._idle, self._reads)
        except NGH2Error as error:  # the server has said that it closes this connection
            connection.leave()
            asyncio.get_running_loop().call_soon(call.answered, f"no stream was possible: {error}")
            return
        stream.send(request, call)

    def _new_connection(self) -> Connection:
        return _StreamConnection(self._headers, self._connections)


class _StreamConnection(Connection):
    """A connection whose calls want what comes before their end."""

    def on_data(self, event: events.DataReceived) -> None:
        """A part of the responses of a stream."""
        stream = self.calls.get(event.stream_id)
        if isinstance(stream, _Stream):
            stream.received(event.data)

    def told(self, event: events.Event) -> None:
        if isinstance(event, events.DataReceived):
            self.on_data(event)
        else:
            super().told(event)


class _Stream:
    """One stream; to its connection it is a call."""

    def __init__(self, connection: Connection, idle: list[_Stream], reads: bool) -> None:
        self._reads = reads
        self._error: str | None = None  # what is wrong with a response of the request in flight
        self._connection = connection
        self._idle = idle
        self._call: Call | None = None
        self._data = bytearray()
        self._number = connection.begin_stream(self)

    @property
    def sent_ns(self) -> int:
        """When the request in flight was sent."""
        return self._call.sent_ns if self._call is not None else _NEVER

    def send(self, request: bytes, call: Call) -> bool:
        """Send a request; False if the stream is gone."""
        try:
            self._connection.send_on(self._number, request)
        except NGH2Error:
            return False
        self._call, self._error = call, None
        return True

    def read(self, outputs: Outputs) -> str | None:
        raise AssertionError("what comes is told by `received`")

    def responded(self, came_ns: int = 0) -> None:
        raise AssertionError("what comes is told by `received`")

    def answered(self, error: str | None, came_ns: int = 0) -> None:
        """The server has ended the stream."""
        with suppress(ValueError):
            self._idle.remove(self)
        call, self._call = self._call, None
        if call is not None:
            call.answered(error or "the stream ended without a final response", came_ns)

    def received(self, data: bytes) -> None:
        """Take bytes of responses."""
        buffer = self._data
        buffer += data
        while len(buffer) >= HEAD_BYTE_SIZE:
            end = HEAD_BYTE_SIZE + int.from_bytes(buffer[1:HEAD_BYTE_SIZE], "big")
            if len(buffer) < end:
                return
            message = bytes(memoryview(buffer)[HEAD_BYTE_SIZE:end])
            del buffer[:end]
            self._response(message)

    def _response(self, message: bytes) -> None:
        call, came_ns = self._call, self._connection.came_ns
        if call is None:
            return  # of a request that has failed
        is_error, is_final = message[:1] == _ERROR_TAG, _FINAL in message
        if not (is_error or is_final or self._reads):
            call.responded(came_ns)
            return
        try:
            response = messages.ModelStreamInferResponse.FromString(message)
        except DecodeError:
            is_error, text = True, NO_RESPONSE
        else:
            text = response.error_message
        if is_error:
            self._call = None
            # More may come for the failed request: another stream takes the next one.
            self._connection.reset(self._number, _CANCEL)
            call.answered(text, came_ns)
            return
        if not is_final or response.infer_response.outputs:
            self._look(call, response.infer_response)
            call.responded(came_ns)
        if not is_final:
            return
        self._call = None
        self._idle.append(self)
        call.answered(self._error, came_ns)

    def _look(self, call: Call, response: Any) -> None:  # Any: a message `ModelInferResponse`
        """Let the call look at a response."""
        if self._reads:
            wrong = looked_at(call, called(response))
            self._error = self._error or wrong
