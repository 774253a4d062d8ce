"""HTTP/2 as it is on the wire: numbers, frames, and what breaks a connection. Source: RFC 9113."""

from __future__ import annotations

import struct

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
REFUSED_STREAM = 7
"""The code of HTTP/2 for a stream that was not looked at, so that it may be sent anew."""
CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 8, 9, 11

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE = range(9)
CONTINUATION = 9
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = 1, 2, 3, 4, 5

HEAD = struct.Struct(">IBI")  # a size of 24 bits and a kind, flags, a stream
HEAD_SIZE = HEAD.size
NUMBER = struct.Struct(">I")
SETTING = struct.Struct(">HI")
FIRST_WINDOW = 65_535
FIRST_FRAME = 16_384
FIRST_STREAMS = 1024
FIRST_TABLE = 4096
LARGEST_WINDOW = 2**31 - 1
LAST_STREAM = 2**31 - 1

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class ConnectionBroken(Exception):
    """The replica breaks the protocol; the connection must end.

    Args:
        code: of HTTP/2.
        text: in words.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    """A frame of a stream; 0 is the connection."""
    return HEAD.pack(len(payload) << 8 | kind, flags, number) + payload


def unpadded(payload: memoryview) -> memoryview:
    """A payload without its padding.

    Raises:
        ConnectionBroken: there is less of it than it says.
    """
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(PROTOCOL_ERROR, "more padding than there is frame")
    return payload[1 : len(payload) - payload[0]]
