"""Frames of HTTP/2 from bytes as they come: data goes on at once, all else when it is whole."""

from __future__ import annotations

from tritonpy_router.grpc_client.header_blocks import MOST_HEADER_BYTES
from tritonpy_router.grpc_client.http2 import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE_ERROR,
    HEAD,
    HEAD_SIZE,
    HEADERS,
    LAST_STREAM,
    PADDED,
    PROTOCOL_ERROR,
    SETTINGS,
    WITH_PRIORITY,
    ConnectionBroken,
    unpadded,
)

MOST_FRAME = 64 * 1024
"""Bytes of the largest frame that replicas may send."""


class FrameReader:
    """Reads what a replica sends on one connection; on the loop only.

    Attributes:
        is_greeted: the replica has begun the connection, and so said how many calls it takes at a time.
    """

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_stream",
        "_data_is_last",
        "_data_left",
        "_data_stream",
        "_partial",
        "is_greeted",
    )

    def __init__(self) -> None:
        self._partial = bytearray()
        self._data_left = 0
        self._data_stream = 0
        self._data_is_last = False
        self._block = bytearray()
        self._block_flags = 0
        self._block_stream = 0
        self.is_greeted = False

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
            begin = position + HEAD_SIZE
            if begin > end:
                break
            size_and_kind, flags, number = HEAD.unpack_from(data, position)
            size = size_and_kind >> 8
            if size_and_kind & 0xFF or flags & PADDED or not size:
                if size > MOST_FRAME:
                    raise ConnectionBroken(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
                if begin + size > end:
                    break
                position = begin + size
                self._take_frame(size_and_kind & 0xFF, flags, number & LAST_STREAM, data[begin:position])
            else:
                self._begin_data(size, flags, number)
                position = begin
        if position < end:
            self._partial += data[position:]

    # What an engine does with it.

    def _on_data(self, number: int, data: memoryview, is_last: bool) -> None:
        """Bytes of a stream have come."""
        raise NotImplementedError

    def _on_block(self, number: int, block: bytes, is_last: bool) -> None:
        """The headers of a stream have come."""
        raise NotImplementedError

    def _on_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        """Another frame has come, or data with padding."""
        raise NotImplementedError

    # Inside.

    def _take_frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        if kind == SETTINGS:
            self.is_greeted = self.is_greeted or not flags & ACK
        elif not self.is_greeted:
            raise ConnectionBroken(PROTOCOL_ERROR, "it does not begin with its settings")
        if self._block_stream and (kind != CONTINUATION or number != self._block_stream):
            raise ConnectionBroken(PROTOCOL_ERROR, "headers that do not go on")
        if kind == HEADERS:
            self._on_header_frame(flags, number, payload)
        elif kind == CONTINUATION:
            if not self._block_stream:
                raise ConnectionBroken(PROTOCOL_ERROR, "headers that go on and did not begin")
            self._add_to_block(flags, payload)
        else:
            self._on_frame(kind, flags, number, payload)

    def _complete_frame(self, data: memoryview) -> int:
        """Add bytes to a frame that has come in part; returns how many."""
        partial = self._partial
        taken = HEAD_SIZE - len(partial)
        if taken > 0:
            partial += data[:taken]
            if len(partial) < HEAD_SIZE:
                return len(data)
        else:
            taken = 0
        size_and_kind, flags, number = HEAD.unpack_from(partial)
        size: int = size_and_kind >> 8
        if size and not (size_and_kind & 0xFF or flags & PADDED):
            partial.clear()
            self._begin_data(size, flags, number)
            return taken
        if size > MOST_FRAME:
            raise ConnectionBroken(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        rest = HEAD_SIZE + size - len(partial)
        partial += data[taken : taken + rest]
        if len(partial) < HEAD_SIZE + size:
            return len(data)
        payload = memoryview(bytes(partial))[HEAD_SIZE:]
        partial.clear()
        self._take_frame(size_and_kind & 0xFF, flags, number & LAST_STREAM, payload)
        return taken + rest

    def _begin_data(self, size: int, flags: int, number: int) -> None:
        if size > MOST_FRAME:
            raise ConnectionBroken(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        if self._block_stream or not self.is_greeted:
            raise ConnectionBroken(PROTOCOL_ERROR, "data where something else was due")
        self._data_left = size
        self._data_stream = number & LAST_STREAM
        self._data_is_last = bool(flags & END_STREAM)

    def _on_header_frame(self, flags: int, number: int, payload: memoryview) -> None:
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & WITH_PRIORITY:
            payload = payload[5:]
        if not number:
            raise ConnectionBroken(PROTOCOL_ERROR, "headers of no stream")
        if flags & END_HEADERS:
            self._on_block(number, bytes(payload), bool(flags & END_STREAM))
            return
        self._block_stream, self._block_flags = number, flags
        self._add_to_block(0, payload)

    def _add_to_block(self, flags: int, payload: memoryview) -> None:
        self._block += payload
        if len(self._block) > MOST_HEADER_BYTES:
            raise ConnectionBroken(PROTOCOL_ERROR, "headers that are too large")
        if flags & END_HEADERS:
            number, self._block_stream = self._block_stream, 0
            block = bytes(self._block)
            self._block.clear()
            self._on_block(number, block, bool(self._block_flags & END_STREAM))
