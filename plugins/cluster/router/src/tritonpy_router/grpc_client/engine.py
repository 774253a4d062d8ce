"""The client's side of one HTTP/2 connection, without input or output.

It is written for calls that are handed on: bytes that are sent leave as the objects that they came in, and
bytes that come are copied once, out of the buffer they were received in. What it knows of HTTP/2 is what a
client needs of it: no pushes, no priorities, no table of headers.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence

from tritonpy_router.grpc_client.call import Piece, UpstreamCall, UpstreamStream
from tritonpy_router.grpc_client.header_blocks import (
    MOST_HEADER_BYTES,
    BlockReader,
    Malformed,
    Undecodable,
)

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
REFUSED_STREAM = 7
"""The code of HTTP/2 for a stream that was not looked at, so that it may be sent anew."""
CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 8, 9, 11

MOST_CALLS = 512
"""Calls of one connection, before another one is made."""
STREAM_WINDOW = 512 << 10
CONNECTION_WINDOW = MOST_CALLS * STREAM_WINDOW  # so that clients which take nothing leave room for others
_FRAME = 64 * 1024  # the largest that replicas may send

_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE = range(9)
_CONTINUATION = 9
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _WITH_PRIORITY = 0x4, 0x8, 0x20
_TABLE_SIZE, _ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME = 1, 2, 3, 4, 5

_HEAD = struct.Struct(">IBI")  # a size of 24 bits and a kind, flags, a stream
_HEAD_SIZE = _HEAD.size
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_FIRST_WINDOW = 65_535
_FIRST_FRAME = 16_384
_FIRST_STREAMS = 1024
_FIRST_TABLE = 4096
_LARGEST_WINDOW = 2**31 - 1
_LAST_STREAM = 2**31 - 1
_SMALL = 16 * 1024
_MOST_UNSENT = 10_000  # frames that wait for a replica which reads nothing

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class ConnectionBroken(Exception):
    """The replica breaks the protocol; the connection must end.

    Args:
        code: of HTTP/2.
        text: in words.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ClientEngine:
    """One connection's protocol state, the client's side; on the loop only.

    Args:
        blocks: reads the headers of answers.
        on_goaway: called when the replica takes no more streams.

    Attributes:
        out: frames that are to be sent, before any data.
        cancelled: streams that were given up, and that the replica has to be told of.
    """

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_stream",
        "_blocked",
        "_blocks",
        "_data_is_last",
        "_data_left",
        "_data_stream",
        "_initial_window",
        "_is_greeted",
        "_most_frame",
        "_most_streams",
        "_next_number",
        "_on_goaway",
        "_partial",
        "_ready",
        "_room",
        "_streams",
        "_table_update",
        "_unreported",
        "_waiting",
        "_window",
        "cancelled",
        "is_going_away",
        "out",
    )

    def __init__(self, blocks: BlockReader, on_goaway: Callable[[], None]) -> None:
        self._blocks = blocks
        self._on_goaway = on_goaway
        self.out: list[Piece] = []
        self.cancelled: dict[int, None] = {}
        self.is_going_away = False
        self._streams: dict[int, UpstreamStream] = {}
        self._waiting: deque[UpstreamStream] = deque()
        self._ready: dict[UpstreamStream, None] = {}  # something of them may be sent
        self._blocked: dict[UpstreamStream, None] = {}  # likewise, but for the connection's window
        self._next_number = 1
        # What the replica takes.
        self._window = _FIRST_WINDOW
        self._initial_window = _FIRST_WINDOW
        self._most_frame = _FIRST_FRAME
        self._most_streams = _FIRST_STREAMS
        self._table_update = b""
        # What it may send.
        self._room = CONNECTION_WINDOW
        self._unreported = 0
        # What is being read.
        self._partial = bytearray()
        self._data_left = 0
        self._data_stream = 0
        self._data_is_last = False
        self._block = bytearray()
        self._block_flags = 0
        self._block_stream = 0
        self._is_greeted = False

    @property
    def call_count(self) -> int:
        """Calls that are open."""
        return len(self._streams) + len(self._waiting)

    @property
    def is_greeted(self) -> bool:
        """Whether the replica has begun the connection, and so said how many calls it takes at a time."""
        return self._is_greeted

    @property
    def takes_calls(self) -> bool:
        """Whether the replica lets this connection open streams."""
        return not self.is_going_away and self._next_number <= _LAST_STREAM

    @property
    def has_place(self) -> bool:
        """Whether a call would begin at once."""
        count = len(self._streams) + len(self.cancelled)
        return count < MOST_CALLS and count < self._most_streams and not self._waiting

    def start(self) -> None:
        """Begin the connection."""
        settings = (
            (_TABLE_SIZE, 0),
            (_ENABLE_PUSH, 0),
            (_INITIAL_WINDOW, STREAM_WINDOW),
            (_MAX_FRAME, _FRAME),
        )
        payload = b"".join(_SETTING.pack(name, value) for name, value in settings)
        more = _NUMBER.pack(CONNECTION_WINDOW - _FIRST_WINDOW)
        self.out.append(_PREFACE + _frame(_SETTINGS, 0, 0, payload) + _frame(_WINDOW_UPDATE, 0, 0, more))

    # What is sent.

    def begin(self, block: bytes, call: UpstreamCall) -> UpstreamStream:
        """Begin a call with these headers; it waits where the replica has all the streams that it takes."""
        stream = UpstreamStream(call, self._initial_window, STREAM_WINDOW)
        if self.has_place:
            self._open(stream, block)
        else:
            stream.block = block
            self._waiting.append(stream)
        return stream

    def ask(self, block: bytes, message: Sequence[Piece], call: UpstreamCall) -> UpstreamStream:
        """Begin a call of one message, which is sent at once, as one piece, if it is small and has room."""
        size = len(message[0])
        if (
            size > _SMALL
            or len(message) > 1
            or size > self._window
            or size > self._initial_window
            or len(block) >= _FIRST_FRAME
            or not self.has_place
        ):
            stream = self.begin(block, call)
            for piece in message:
                self.data(stream, piece)
            self.end(stream)
            return stream
        stream = UpstreamStream(call, self._initial_window - size, STREAM_WINDOW)
        number = stream.number = self._next_number
        self._next_number = number + 2
        self._streams[number] = stream
        stream.is_ending = stream.is_sent = True
        self._window -= size
        if self._table_update:
            block, self._table_update = self._table_update + block, b""
        head = _HEAD.pack(len(block) << 8 | _HEADERS, _END_HEADERS, number)
        data = _HEAD.pack(size << 8, _END_STREAM, number)
        self.out.append(b"".join((head, block, data, message[0])))
        return stream

    def data(self, stream: UpstreamStream, piece: Piece) -> None:
        """Send bytes of a call as the replica's windows allow; those of one that is over are dropped."""
        if stream.is_over:
            return
        if stream.pieces is None:
            stream.pieces = deque()
        stream.pieces.append(piece)
        stream.queued += len(piece)
        self._ready[stream] = None

    def end(self, stream: UpstreamStream) -> None:
        """Send nothing more of a call."""
        if not (stream.is_over or stream.is_ending):
            stream.is_ending = True
            self._ready[stream] = None

    def cancel(self, stream: UpstreamStream) -> None:
        """Give up a call, which hears nothing more; `reset` is to follow for those in `cancelled`."""
        if stream.is_over:
            return
        self._forget(stream)
        if stream.number:
            del self._streams[stream.number]
            self.cancelled[stream.number] = None
        else:
            self._waiting.remove(stream)

    def reset(self, number: int, code: int) -> None:
        """Tell the replica that a stream is over."""
        self.cancelled.pop(number, None)
        self.out.append(_frame(_RST_STREAM, 0, number, _NUMBER.pack(code)))
        self._open_waiting()

    def consumed(self, stream: UpstreamStream, byte_size: int) -> None:
        """Let the replica send so much more, on the stream and on the connection."""
        if not stream.is_over:
            stream.unreported += byte_size
            if stream.unreported >= STREAM_WINDOW // 2:
                more, stream.unreported = stream.unreported, 0
                stream.room += more
                self.out.append(_frame(_WINDOW_UPDATE, 0, stream.number, _NUMBER.pack(more)))
        self._give_back(byte_size)

    def goaway(self, code: int) -> None:
        """Tell the replica that the connection ends."""
        self.out.append(_frame(_GOAWAY, 0, 0, _NUMBER.pack(0) + _NUMBER.pack(code)))

    def take(self, most: int) -> list[Piece]:
        """Pieces that can be sent now, and about as many bytes of calls among them as `most` says."""
        out, self.out = self.out, []
        if self._ready:
            self._take_data(out, most)
        return out

    @property
    def has_more(self) -> bool:
        """Whether `take` would give something."""
        return bool(self.out or self._ready)

    # What comes.

    def feed(self, data: memoryview) -> None:
        """Take bytes from the replica, and tell calls what they mean.

        Raises:
            ConnectionBroken: the connection must end.
        """
        position, end = 0, len(data)
        if self._partial:
            position = self._complete_frame(data)
        while position < end:
            left = self._data_left
            if left:
                size = left if left < end - position else end - position
                self._data_left = left - size
                is_last = self._data_is_last and size == left
                self._on_data(self._data_stream, data[position : position + size], is_last)
                position += size
                continue
            begin = position + _HEAD_SIZE
            if begin > end:
                break
            size_and_kind, flags, number = _HEAD.unpack_from(data, position)
            size = size_and_kind >> 8
            if size_and_kind & 0xFF or flags & _PADDED or not size:
                if size > _FRAME:
                    raise ConnectionBroken(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
                if begin + size > end:
                    break
                position = begin + size
                self._on_frame(size_and_kind & 0xFF, flags, number & _LAST_STREAM, data[begin:position])
            else:
                self._begin_data(size, flags, number)
                position = begin
        if position < end:
            self._partial += data[position:]

    def lose(self) -> list[UpstreamCall]:
        """The connection is over; returns the calls that were open, which are to be told."""
        streams = [*self._streams.values(), *self._waiting]
        self._streams.clear()
        self._waiting.clear()
        self.cancelled.clear()
        self.out.clear()
        for stream in streams:
            self._forget(stream)
        return [stream.call for stream in streams]

    # Inside: sending.

    def _open(self, stream: UpstreamStream, block: bytes) -> None:
        number = stream.number = self._next_number
        self._next_number = number + 2
        stream.window = self._initial_window
        self._streams[number] = stream
        if self._table_update:
            block, self._table_update = self._table_update + block, b""
        self._send_block(number, block)

    def _send_block(self, number: int, block: bytes) -> None:
        kind = _HEADERS
        while len(block) > _FIRST_FRAME:
            self.out.append(_frame(kind, 0, number, block[:_FIRST_FRAME]))
            block, kind = block[_FIRST_FRAME:], _CONTINUATION
        self.out.append(_frame(kind, _END_HEADERS, number, block))

    def _open_waiting(self) -> None:
        """Begin calls that the replica has had no place for."""
        while self._waiting:
            count = len(self._streams) + len(self.cancelled)
            if count >= MOST_CALLS or count >= self._most_streams or not self.takes_calls:
                return
            stream = self._waiting.popleft()
            block, stream.block = stream.block, b""
            self._open(stream, block)
            if stream.queued or stream.is_ending:
                self._ready[stream] = None

    def _take_data(self, out: list[Piece], most: int) -> None:
        """Add frames of data, one of each stream in turn."""
        ready = self._ready
        taken = 0
        while ready and taken < most:
            stream = next(iter(ready))
            del ready[stream]
            if stream.is_over or stream.is_sent or not stream.number:
                continue
            size = 0
            if stream.queued:
                size = min(stream.queued, stream.window, self._window, self._most_frame)
                if size <= 0:
                    if stream.window > 0:
                        self._blocked[stream] = None
                    continue
            elif not stream.is_ending:
                continue
            is_last = stream.is_ending and size == stream.queued
            out.append(_HEAD.pack(size << 8, _END_STREAM if is_last else 0, stream.number))
            if size:
                _move(stream, out, size)
                stream.window -= size
                self._window -= size
                taken += size
            if is_last:
                stream.is_sent = True
            elif stream.queued:
                ready[stream] = None

    # Inside: what comes.

    def _complete_frame(self, data: memoryview) -> int:
        """Add bytes to a frame that has come in part; returns how many."""
        partial = self._partial
        taken = _HEAD_SIZE - len(partial)
        if taken > 0:
            partial += data[:taken]
            if len(partial) < _HEAD_SIZE:
                return len(data)
        else:
            taken = 0
        size_and_kind, flags, number = _HEAD.unpack_from(partial)
        size: int = size_and_kind >> 8
        if size and not (size_and_kind & 0xFF or flags & _PADDED):
            partial.clear()
            self._begin_data(size, flags, number)
            return taken
        if size > _FRAME:
            raise ConnectionBroken(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        rest = _HEAD_SIZE + size - len(partial)
        partial += data[taken : taken + rest]
        if len(partial) < _HEAD_SIZE + size:
            return len(data)
        payload = memoryview(bytes(partial))[_HEAD_SIZE:]
        partial.clear()
        self._on_frame(size_and_kind & 0xFF, flags, number & _LAST_STREAM, payload)
        return taken + rest

    def _begin_data(self, size: int, flags: int, number: int) -> None:
        if size > _FRAME:
            raise ConnectionBroken(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        if self._block_stream or not self._is_greeted:
            raise ConnectionBroken(PROTOCOL_ERROR, "data where something else was due")
        self._data_left = size
        self._data_stream = number & _LAST_STREAM
        self._data_is_last = bool(flags & _END_STREAM)

    def _on_data(self, number: int, data: memoryview, is_last: bool) -> None:
        byte_size = len(data)
        self._room -= byte_size
        stream = self._streams.get(number)
        if stream is None:
            self._check_known(number)
            self._give_back(byte_size)
            if is_last:
                self._gone(number)
            return
        stream.room -= byte_size
        if stream.room < 0 or self._room < 0:
            raise ConnectionBroken(FLOW_CONTROL_ERROR, "more data than it was given room for")
        if not stream.has_headers:
            self._give_back(byte_size)
            self._fail(stream)
            return
        if byte_size:
            stream.call.replica_data(bytes(data))
        if is_last and not stream.is_over:
            self._ended(stream)

    def _on_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        if kind != _SETTINGS and not self._is_greeted:
            raise ConnectionBroken(PROTOCOL_ERROR, "it does not begin with its settings")
        if self._block_stream and (kind != _CONTINUATION or number != self._block_stream):
            raise ConnectionBroken(PROTOCOL_ERROR, "headers that do not go on")
        if kind == _HEADERS:
            self._on_header_frame(flags, number, payload)
        elif kind == _DATA:
            data = _unpadded(payload) if flags & _PADDED else payload
            padding = len(payload) - len(data)
            self._room -= padding
            stream = self._streams.get(number)
            if stream is not None:
                stream.room -= padding
                self.consumed(stream, padding)
            else:
                self._give_back(padding)
            self._on_data(number, data, bool(flags & _END_STREAM))
        elif kind == _WINDOW_UPDATE:
            self._on_window(number, payload)
        elif kind == _SETTINGS:
            self._on_settings(flags, number, payload)
        elif kind == _PING:
            if len(payload) != 8 or number:
                raise ConnectionBroken(FRAME_SIZE_ERROR, "a ping that is none")
            if not flags & _ACK:
                if len(self.out) > _MOST_UNSENT:
                    raise ConnectionBroken(ENHANCE_YOUR_CALM, "more pings than it takes answers to")
                self.out.append(_frame(_PING, _ACK, 0, bytes(payload)))
        elif kind == _RST_STREAM:
            if len(payload) != 4 or not number:
                raise ConnectionBroken(FRAME_SIZE_ERROR, "a reset that is none")
            self._check_known(number)
            self._gone(number)
            stream = self._streams.pop(number, None)
            if stream is not None:
                self._forget(stream)
                self._open_waiting()
                stream.call.replica_over(_NUMBER.unpack(payload)[0])
        elif kind == _GOAWAY:
            self._on_goaway_frame(payload)
        elif kind == _CONTINUATION:
            if not self._block_stream:
                raise ConnectionBroken(PROTOCOL_ERROR, "headers that go on and did not begin")
            self._add_to_block(flags, payload)
        elif kind == _PUSH_PROMISE:
            raise ConnectionBroken(PROTOCOL_ERROR, "a push, though none is taken")

    def _on_header_frame(self, flags: int, number: int, payload: memoryview) -> None:
        if flags & _PADDED:
            payload = _unpadded(payload)
        if flags & _WITH_PRIORITY:
            payload = payload[5:]
        self._check_known(number)
        if flags & _END_HEADERS:
            self._on_block(number, bytes(payload), bool(flags & _END_STREAM))
            return
        self._block_stream, self._block_flags = number, flags
        self._add_to_block(0, payload)

    def _add_to_block(self, flags: int, payload: memoryview) -> None:
        self._block += payload
        if len(self._block) > MOST_HEADER_BYTES:
            raise ConnectionBroken(PROTOCOL_ERROR, "headers that are too large")
        if flags & _END_HEADERS:
            number, self._block_stream = self._block_stream, 0
            block = bytes(self._block)
            self._block.clear()
            self._on_block(number, block, bool(self._block_flags & _END_STREAM))

    def _on_block(self, number: int, block: bytes, is_last: bool) -> None:
        stream = self._streams.get(number)
        if stream is None:  # no block needs what was in another one
            self._check_known(number)
            if is_last:
                self._gone(number)
            return
        try:
            headers = self._blocks.read(block)
        except Undecodable as exc:
            raise ConnectionBroken(COMPRESSION_ERROR, str(exc)) from None
        except Malformed:
            self._fail(stream)
            return
        if stream.has_headers:
            if not is_last or (headers and headers[0][0][:1] == b":"):
                self._fail(stream)
                return
            stream.call.replica_trailers(headers)
        else:
            if not headers or headers[0][0] != b":status":
                self._fail(stream)
                return
            if headers[0][1][:1] == b"1" and not is_last:
                return  # the answer follows
            stream.has_headers = True
            stream.call.replica_headers(headers, is_last)
        if is_last and not stream.is_over:
            self._ended(stream)

    def _on_window(self, number: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(FRAME_SIZE_ERROR, "a window that is none")
        more = _NUMBER.unpack(payload)[0] & _LARGEST_WINDOW
        if not number:
            self._window += more
            if self._window > _LARGEST_WINDOW:
                raise ConnectionBroken(FLOW_CONTROL_ERROR, "too large a window")
            if self._blocked:
                self._ready.update(self._blocked)
                self._blocked.clear()
            return
        stream = self._streams.get(number)
        if stream is None:
            self._check_known(number)
            return
        stream.window += more
        if stream.window > _LARGEST_WINDOW:
            self._fail(stream)
        elif stream.queued:
            self._ready[stream] = None

    def _on_settings(self, flags: int, number: int, payload: memoryview) -> None:
        if number or len(payload) % _SETTING.size or (flags & _ACK and payload):
            raise ConnectionBroken(FRAME_SIZE_ERROR, "settings that are none")
        if flags & _ACK:
            return
        self._is_greeted = True
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW:
                self._set_initial_window(value)
            elif name == _MAX_FRAME:
                if not _FIRST_FRAME <= value < 1 << 24:
                    raise ConnectionBroken(PROTOCOL_ERROR, f"frames of {value} bytes")
                self._most_frame = value
            elif name == _MAX_STREAMS:
                self._most_streams = value
            elif name == _TABLE_SIZE and value < _FIRST_TABLE:
                self._table_update = b"\x20"  # the table that is not used has no place any more
        self.out.append(_frame(_SETTINGS, _ACK, 0, b""))
        self._open_waiting()

    def _set_initial_window(self, value: int) -> None:
        if value > _LARGEST_WINDOW:
            raise ConnectionBroken(FLOW_CONTROL_ERROR, "too large a window")
        more, self._initial_window = value - self._initial_window, value
        for stream in self._streams.values():
            stream.window += more
            if stream.window > _LARGEST_WINDOW:
                raise ConnectionBroken(FLOW_CONTROL_ERROR, "too large a window")
            if stream.queued:
                self._ready[stream] = None

    def _on_goaway_frame(self, payload: memoryview) -> None:
        if len(payload) < 8:
            raise ConnectionBroken(FRAME_SIZE_ERROR, "a GOAWAY that is none")
        last = _NUMBER.unpack_from(payload)[0] & _LAST_STREAM
        self.is_going_away = True
        unseen = [stream for number, stream in self._streams.items() if number > last]
        for stream in unseen:
            del self._streams[stream.number]
        unseen += self._waiting
        self._waiting.clear()
        for stream in unseen:
            self._forget(stream)
        self._on_goaway()
        for stream in unseen:
            stream.call.replica_over(REFUSED_STREAM)

    def _ended(self, stream: UpstreamStream) -> None:
        """The replica has ended a stream; what of the call was not sent is not wanted."""
        del self._streams[stream.number]
        if not stream.is_sent:
            self.out.append(_HEAD.pack(0, _END_STREAM, stream.number))
        self._forget(stream)
        if self._waiting:
            self._open_waiting()
        stream.call.replica_over(NO_ERROR)

    def _fail(self, stream: UpstreamStream) -> None:
        """What comes of a stream is not allowed."""
        del self._streams[stream.number]
        self._forget(stream)
        self.reset(stream.number, PROTOCOL_ERROR)
        stream.call.replica_over(PROTOCOL_ERROR)

    def _gone(self, number: int) -> None:
        """A stream that was given up has ended by itself."""
        if self.cancelled and number in self.cancelled:
            del self.cancelled[number]
            self._open_waiting()

    def _forget(self, stream: UpstreamStream) -> None:
        stream.is_over = True
        if stream.queued:
            stream.queued = 0
            stream.pieces = None
            self._ready.pop(stream, None)
            self._blocked.pop(stream, None)

    def _give_back(self, byte_size: int) -> None:
        self._unreported += byte_size
        if self._unreported >= CONNECTION_WINDOW // 4:
            more, self._unreported = self._unreported, 0
            self._room += more
            self.out.append(_frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(more)))

    def _check_known(self, number: int) -> None:
        if not number or number >= self._next_number or not number & 1:
            raise ConnectionBroken(PROTOCOL_ERROR, f"the stream {number} was not begun")


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, number) + payload


def _unpadded(payload: memoryview) -> memoryview:
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(PROTOCOL_ERROR, "more padding than there is frame")
    return payload[1 : len(payload) - payload[0]]


def _move(stream: UpstreamStream, out: list[Piece], size: int) -> None:
    """Take so many bytes of a call, as the pieces that they are."""
    pieces = stream.pieces
    assert pieces is not None  # so many are queued
    stream.queued -= size
    while size:
        piece = pieces[0]
        length = len(piece)
        if length > size:
            view = memoryview(piece)
            out.append(view[:size])
            pieces[0] = view[size:]
            return
        out.append(piece)
        pieces.popleft()
        size -= length
