"""The HTTP/2 engine of the distribution `ngh2`, which brings libnghttp2."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

import ngh2
from ngh2 import events
from ngh2.exceptions import ConnectionStateError, NGH2Error, StreamUnavailableError

from tritonpy.frontends.grpc.native.engine import (
    EngineError,
    EngineSettings,
    ErrorCode,
    Headers,
    Receiver,
    StreamGone,
)

_RESETS = (200, 50)  # that a client may send at once, and per second after that; each may have cost a call
_MOST_HEADERS = 512
_NONE = ngh2.Connection(ngh2.Role.SERVER)  # never begun: it refuses all that is sent, and has nothing
# The head of a GOAWAY; those of ngh2 have no text where streams may still come. The size of its payload is
# followed by its kind, 7, then come flags, stream, the last stream, and a code.
_NOTICE = struct.Struct(">IBIII")
_LAST_OF_ALL = 2**31 - 1


class Ngh2Engine:
    """Satisfies `Engine`.

    Args:
        receiver: is told what comes.
    """

    __slots__ = ("_connection", "_notice", "_receiver")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._connection = _NONE
        self._notice = b""

    def start(self, settings: EngineSettings) -> None:
        configuration = ngh2.Configuration(
            auto_window_update=False,
            stream_reset_rate_limit=_RESETS,
            max_inbound_header_list_size=settings.most_header_list_size,
            max_inbound_header_count=_MOST_HEADERS,
        )
        connection = ngh2.Connection(ngh2.Role.SERVER, configuration)
        connection.initiate_connection(
            {
                ngh2.Setting.MAX_CONCURRENT_STREAMS: settings.max_concurrent_streams,
                ngh2.Setting.INITIAL_WINDOW_SIZE: settings.stream_window,
                ngh2.Setting.MAX_FRAME_SIZE: settings.max_frame_size,
                ngh2.Setting.MAX_HEADER_LIST_SIZE: settings.max_header_list_size,
                ngh2.Setting.NO_RFC7540_PRIORITIES: 1,
            }
        )
        connection.set_local_window_size(settings.connection_window)
        self._connection = connection

    def feed(self, data: bytes | memoryview) -> None:
        try:
            self._connection.receive_data(data)
        except NGH2Error as exc:
            raise EngineError(str(exc)) from None
        self._tell()

    def headers(self, stream: int, headers: Headers, is_last: bool = False) -> None:
        try:
            self._connection.send_response(stream, headers, end_stream=is_last)
        except NGH2Error as exc:
            raise StreamGone(str(exc)) from None

    def data(self, stream: int, data: bytes | memoryview) -> None:
        try:
            self._connection.send_data(stream, data)
        except NGH2Error as exc:
            raise StreamGone(str(exc)) from None

    def trailers(self, stream: int, headers: Headers) -> None:
        try:
            self._connection.send_trailers(stream, headers)
        except NGH2Error as exc:
            raise StreamGone(str(exc)) from None

    def reset(self, stream: int, code: int) -> None:
        with suppress(ConnectionStateError):
            self._connection.reset_stream(stream, code)

    def consumed(self, stream: int, byte_size: int) -> None:
        try:  # which costs nothing, unlike `suppress`: this is done for each frame
            self._connection.acknowledge_received_data(byte_size, stream)
        except (ConnectionStateError, StreamUnavailableError):
            return

    def queued(self, stream: int) -> int:
        return self._connection.queued_body_size(stream or None)

    def window(self, stream: int) -> int:
        try:
            return min(
                self._connection.stream_remote_window_size(stream), self._connection.remote_window_size
            )
        except NGH2Error:
            return 0

    def ping(self, data: bytes) -> None:
        with suppress(ConnectionStateError):
            self._connection.ping(data)

    def shutdown_notice(self, text: bytes = b"") -> None:
        self._notice = _NOTICE.pack(8 + len(text) << 8 | 7, 0, 0, _LAST_OF_ALL, ErrorCode.NO_ERROR) + text

    def goaway(self, code: int, text: bytes = b"") -> None:
        with suppress(ConnectionStateError):
            self._connection.send_goaway(code, debug_data=text)

    def drain(self, most: int) -> bytes:
        try:
            data = self._connection.data_to_send(most)
        except ConnectionStateError:  # it was attacked, and has no words for that
            return b""
        if self._notice and len(data) < most:  # no frame is half sent
            data += self._notice
            self._notice = b""
        self._tell()  # sending may end streams
        return data

    @property
    def wants_io(self) -> bool:
        try:
            return self._connection.want_read or self._connection.want_write
        except ConnectionStateError:
            return False

    def close(self) -> None:
        self._connection = _NONE
        del self._receiver

    def _tell(self) -> None:
        receiver = self._receiver
        for event in self._connection.events():
            tell = _TELLS.get(type(event))
            if tell is not None:
                tell(receiver, event)


def _request(receiver: Receiver, event: events.RequestReceived) -> None:
    receiver.on_request(event.stream_id, event.headers, event.end_stream)


def _data(receiver: Receiver, event: events.DataReceived) -> None:
    receiver.on_data(event.stream_id, event.data, event.end_stream)


def _trailers(receiver: Receiver, event: events.TrailersReceived) -> None:
    receiver.on_data(event.stream_id, b"", True)


def _reset(receiver: Receiver, event: events.StreamReset) -> None:
    receiver.on_reset(event.stream_id, event.error_code)


def _closed(receiver: Receiver, event: events.StreamClosed) -> None:
    receiver.on_closed(event.stream_id)


def _ping(receiver: Receiver, event: events.PingReceived) -> None:
    receiver.on_ping()


def _ping_answer(receiver: Receiver, event: events.PingAcknowledged) -> None:
    receiver.on_ping_answer(event.opaque_data)


def _settings(receiver: Receiver, event: events.SettingsReceived) -> None:
    receiver.on_settings()


_TELLS: dict[type[events.Event], Callable[..., None]] = {
    events.RequestReceived: _request,
    events.DataReceived: _data,
    events.TrailersReceived: _trailers,
    events.StreamReset: _reset,
    events.StreamClosed: _closed,
    events.PingReceived: _ping,
    events.PingAcknowledged: _ping_answer,
    events.SettingsReceived: _settings,
}
