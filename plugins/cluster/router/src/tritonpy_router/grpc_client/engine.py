"""The client's side of one HTTP/2 connection, without input or output.

It is written for calls that are handed on: bytes that are sent leave as the objects that they came in, and
bytes that come are copied once, out of the buffer they were received in. What it knows of HTTP/2 is what a
client needs of it: no pushes, no priorities, no table of headers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tritonpy_router.grpc_client.call import Piece, UpstreamCall, UpstreamStream
from tritonpy_router.grpc_client.frame_reader import MOST_FRAME, FrameReader
from tritonpy_router.grpc_client.header_blocks import (
    BlockReader,
    Malformed,
    Undecodable,
)
from tritonpy_router.grpc_client.http2 import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FIRST_FRAME,
    FIRST_STREAMS,
    FIRST_TABLE,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEAD,
    HEADERS,
    INITIAL_WINDOW,
    LARGEST_WINDOW,
    LAST_STREAM,
    MAX_FRAME,
    MAX_STREAMS,
    NO_ERROR,
    NUMBER,
    PADDED,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING,
    SETTINGS,
    TABLE_SIZE,
    WINDOW_UPDATE,
    ConnectionBroken,
    frame,
    unpadded,
)

MOST_CALLS = 512
"""Calls of one connection, before another one is made."""
STREAM_WINDOW = 512 << 10
CONNECTION_WINDOW = MOST_CALLS * STREAM_WINDOW  # so that clients which take nothing leave room for others
_SMALL = 16 * 1024
_MOST_UNSENT = 10_000  # frames that wait for a replica which reads nothing


class ClientEngine(FrameReader):
    """One connection's protocol state, the client's side; on the loop only.

    Args:
        blocks: reads the headers of answers.
        on_goaway: called when the replica takes no more streams.

    Attributes:
        out: frames that are to be sent, before any data.
        cancelled: streams that were given up, and that the replica has to be told of.
    """

    __slots__ = (
        "_blocked",
        "_blocks",
        "_initial_window",
        "_most_frame",
        "_most_streams",
        "_next_number",
        "_on_goaway",
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
        super().__init__()
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
        self._window = FIRST_WINDOW
        self._initial_window = FIRST_WINDOW
        self._most_frame = FIRST_FRAME
        self._most_streams = FIRST_STREAMS
        self._table_update = b""
        # What it may send.
        self._room = CONNECTION_WINDOW
        self._unreported = 0

    @property
    def call_count(self) -> int:
        """Calls that are open."""
        return len(self._streams) + len(self._waiting)

    @property
    def takes_calls(self) -> bool:
        """Whether the replica lets this connection open streams."""
        return not self.is_going_away and self._next_number <= LAST_STREAM

    @property
    def has_place(self) -> bool:
        """Whether a call would begin at once."""
        count = len(self._streams) + len(self.cancelled)
        return count < MOST_CALLS and count < self._most_streams and not self._waiting

    def start(self) -> None:
        """Begin the connection."""
        settings = (
            (TABLE_SIZE, 0),
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW, STREAM_WINDOW),
            (MAX_FRAME, MOST_FRAME),
        )
        payload = b"".join(SETTING.pack(name, value) for name, value in settings)
        more = NUMBER.pack(CONNECTION_WINDOW - FIRST_WINDOW)
        self.out.append(PREFACE + frame(SETTINGS, 0, 0, payload) + frame(WINDOW_UPDATE, 0, 0, more))

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
            or len(block) >= FIRST_FRAME
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
        head = HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS, number)
        data = HEAD.pack(size << 8, END_STREAM, number)
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
        self.out.append(frame(RST_STREAM, 0, number, NUMBER.pack(code)))
        self._open_waiting()

    def consumed(self, stream: UpstreamStream, byte_size: int) -> None:
        """Let the replica send so much more, on the stream and on the connection."""
        if not stream.is_over:
            stream.unreported += byte_size
            if stream.unreported >= STREAM_WINDOW // 2:
                more, stream.unreported = stream.unreported, 0
                stream.room += more
                self.out.append(frame(WINDOW_UPDATE, 0, stream.number, NUMBER.pack(more)))
        self._give_back(byte_size)

    def goaway(self, code: int) -> None:
        """Tell the replica that the connection ends."""
        self.out.append(frame(GOAWAY, 0, 0, NUMBER.pack(0) + NUMBER.pack(code)))

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
        kind = HEADERS
        while len(block) > FIRST_FRAME:
            self.out.append(frame(kind, 0, number, block[:FIRST_FRAME]))
            block, kind = block[FIRST_FRAME:], CONTINUATION
        self.out.append(frame(kind, END_HEADERS, number, block))

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
            out.append(HEAD.pack(size << 8, END_STREAM if is_last else 0, stream.number))
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
        if kind == DATA:
            data = unpadded(payload) if flags & PADDED else payload
            padding = len(payload) - len(data)
            self._room -= padding
            stream = self._streams.get(number)
            if stream is not None:
                stream.room -= padding
                self.consumed(stream, padding)
            else:
                self._give_back(padding)
            self._on_data(number, data, bool(flags & END_STREAM))
        elif kind == WINDOW_UPDATE:
            self._on_window(number, payload)
        elif kind == SETTINGS:
            self._on_settings(flags, number, payload)
        elif kind == PING:
            if len(payload) != 8 or number:
                raise ConnectionBroken(FRAME_SIZE_ERROR, "a ping that is none")
            if not flags & ACK:
                if len(self.out) > _MOST_UNSENT:
                    raise ConnectionBroken(ENHANCE_YOUR_CALM, "more pings than it takes answers to")
                self.out.append(frame(PING, ACK, 0, bytes(payload)))
        elif kind == RST_STREAM:
            if len(payload) != 4 or not number:
                raise ConnectionBroken(FRAME_SIZE_ERROR, "a reset that is none")
            self._check_known(number)
            self._gone(number)
            stream = self._streams.pop(number, None)
            if stream is not None:
                self._forget(stream)
                self._open_waiting()
                stream.call.replica_over(NUMBER.unpack(payload)[0])
        elif kind == GOAWAY:
            self._on_goaway_frame(payload)
        elif kind == PUSH_PROMISE:
            raise ConnectionBroken(PROTOCOL_ERROR, "a push, though none is taken")

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
        more = NUMBER.unpack(payload)[0] & LARGEST_WINDOW
        if not number:
            self._window += more
            if self._window > LARGEST_WINDOW:
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
        if stream.window > LARGEST_WINDOW:
            self._fail(stream)
        elif stream.queued:
            self._ready[stream] = None

    def _on_settings(self, flags: int, number: int, payload: memoryview) -> None:
        if number or len(payload) % SETTING.size or (flags & ACK and payload):
            raise ConnectionBroken(FRAME_SIZE_ERROR, "settings that are none")
        if flags & ACK:
            return
        for name, value in SETTING.iter_unpack(payload):
            if name == INITIAL_WINDOW:
                self._set_initial_window(value)
            elif name == MAX_FRAME:
                if not FIRST_FRAME <= value < 1 << 24:
                    raise ConnectionBroken(PROTOCOL_ERROR, f"frames of {value} bytes")
                self._most_frame = value
            elif name == MAX_STREAMS:
                self._most_streams = value
            elif name == TABLE_SIZE and value < FIRST_TABLE:
                self._table_update = b"\x20"  # the table that is not used has no place any more
        self.out.append(frame(SETTINGS, ACK, 0, b""))
        self._open_waiting()

    def _set_initial_window(self, value: int) -> None:
        if value > LARGEST_WINDOW:
            raise ConnectionBroken(FLOW_CONTROL_ERROR, "too large a window")
        more, self._initial_window = value - self._initial_window, value
        for stream in self._streams.values():
            stream.window += more
            if stream.window > LARGEST_WINDOW:
                raise ConnectionBroken(FLOW_CONTROL_ERROR, "too large a window")
            if stream.queued:
                self._ready[stream] = None

    def _on_goaway_frame(self, payload: memoryview) -> None:
        if len(payload) < 8:
            raise ConnectionBroken(FRAME_SIZE_ERROR, "a GOAWAY that is none")
        last = NUMBER.unpack_from(payload)[0] & LAST_STREAM
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
            self.out.append(HEAD.pack(0, END_STREAM, stream.number))
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
            self.out.append(frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(more)))

    def _check_known(self, number: int) -> None:
        if not number or number >= self._next_number or not number & 1:
            raise ConnectionBroken(PROTOCOL_ERROR, f"the stream {number} was not begun")


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
