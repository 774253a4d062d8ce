"""Rules of RFC 9113, sections 3 to 8, and RFC 7541: bytes that a client sends, and what may come of them.

A case begins on a connection that has exchanged settings, unless it says otherwise. Sections of RFC 7541 are
written with an `H`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .raw import (
    ACK,
    CONTINUATION,
    DATA,
    EMPTY_MESSAGE,
    ENABLE_CONNECT_PROTOCOL,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Headers,
    block,
    call,
    data,
    frame,
    headers,
    ping,
    request_headers,
    reset,
    settings,
    window_update,
)

ANSWERED = frozenset({"answered"})
"""The call on the stream ends with the gRPC status 0."""
ALIVE = frozenset({"alive"})
"""Nothing is said to it, and a ping is answered afterwards."""
REFUSED_CALL = frozenset({"refused call"})
"""The call is answered, in words of HTTP or gRPC that refuse it."""


@dataclass(frozen=True)
class Case:
    """One rule.

    Attributes:
        section: of the RFC.
        name: what is sent.
        sent: the bytes; a function is given what the server has announced, by number of the setting.
        allowed: what may become of it: `ALIVE`, `ANSWERED`, `GOAWAY <error>`, `RST_STREAM <error>`.
        stream: that is looked at; 0 for any.
        greets: settings have been exchanged before.
    """

    section: str
    name: str
    sent: bytes | Callable[[dict[int, int]], bytes]
    allowed: frozenset[str]
    stream: int = 1
    greets: bool = True


def closed(*errors: str) -> frozenset[str]:
    """An error of the connection: GOAWAY, and the end."""
    return frozenset(f"GOAWAY {error}" for error in errors)


def stream_error(*errors: str) -> frozenset[str]:
    """An error of the stream, which a server may always take for one of the connection (section 5.4.2)."""
    return frozenset(f"RST_STREAM {error}" for error in errors) | closed(*errors)


MALFORMED = stream_error("PROTOCOL_ERROR")
NO_PREFACE = closed("PROTOCOL_ERROR") | {"closed"}  # section 3.4: GOAWAY may be left out
GONE = stream_error("STREAM_CLOSED") | ALIVE  # section 5.1: what comes for a closed stream may be passed over
BAD_SIZE = closed("FRAME_SIZE_ERROR")
BAD_BLOCK = closed("COMPRESSION_ERROR")

OPEN = END_HEADERS
WHOLE = END_HEADERS | END_STREAM
FIELDS = request_headers()
BLOCK = block(FIELDS)
ADDED = 4
"""Entries that it adds to the table: all but `:method`, `:scheme` and those that the static table has."""
LAST = data(1, EMPTY_MESSAGE, END_STREAM)
OPENED = headers(1, FIELDS)
HELD = settings((INITIAL_WINDOW_SIZE, 0)) + call()
"""A call whose answer waits for room: the client's half of the stream is closed, the server's is open."""


def _with(*more: tuple[str, str], at: int | None = None) -> Headers:
    fields = list(FIELDS)
    fields[len(fields) if at is None else at : 0] = more
    return fields


def _asked(fields: Headers) -> bytes:
    """A call with these headers."""
    return headers(1, fields) + LAST


def _extra(name: bytes, value: bytes) -> bytes:
    """A call with one more header, literally these bytes, that no encoder would write."""
    literal = b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return frame(HEADERS, OPEN, 1, BLOCK + literal) + LAST


def _without(name: str) -> bytes:
    return _asked([field for field in FIELDS if field[0] != name])


def _replaced(name: str, value: str) -> bytes:
    return _asked([(key, value if key == name else old) for key, old in FIELDS])


def _hpack(more: bytes, before: bytes = b"") -> bytes:
    """A call whose header block has more bytes at its end, or before it."""
    return frame(HEADERS, OPEN, 1, before + BLOCK + more) + LAST


def _split(*sizes: int) -> bytes:
    """A call whose header block comes in pieces."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(BLOCK[at : at + size])
        at += size
    pieces.append(BLOCK[at:])
    frames = [frame(HEADERS, 0, 1, pieces[0])]
    frames += [frame(CONTINUATION, 0, 1, piece) for piece in pieces[1:-1]]
    frames.append(frame(CONTINUATION, END_HEADERS, 1, pieces[-1]))
    return b"".join(frames) + LAST


def _larger_than_frames(kind: int, stream: int) -> Callable[[dict[int, int]], bytes]:
    def sent(peer: dict[int, int]) -> bytes:
        size = peer.get(MAX_FRAME_SIZE, 16_384) + 1
        size += -size % 6 if kind == SETTINGS else 0
        return frame(kind, OPEN if kind == HEADERS else 0, stream, bytes(size))

    return sent


def _too_many(peer: dict[int, int]) -> bytes:
    """Calls that stay open, one more of them than the server lets in."""
    count = peer[MAX_CONCURRENT_STREAMS]
    opened = block(FIELDS)
    return b"".join(frame(HEADERS, OPEN, 2 * number + 1, opened) for number in range(count + 1))


def preface() -> Iterator[Case]:
    """Section 3: how a connection begins."""
    first = settings()
    yield Case(
        "3.4",
        "all of a call at once, before the server says anything",
        PREFACE + first + call(),
        ANSWERED,
        greets=False,
    )
    yield Case(
        "3.4", "a preface that is none", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + first, NO_PREFACE, greets=False
    )
    yield Case(
        "3.4",
        "a request of HTTP/1.1",
        b"GET / HTTP/1.1\r\nHost: t\r\n\r\n",
        NO_PREFACE | {"HTTP/1"},
        greets=False,
    )
    yield Case("3.4", "PING instead of the first SETTINGS", PREFACE + ping(), NO_PREFACE, greets=False)
    yield Case("3.4", "HEADERS instead of the first SETTINGS", PREFACE + call(), NO_PREFACE, greets=False)
    yield Case(
        "3.4",
        "the first SETTINGS is an acknowledgement",
        PREFACE + frame(SETTINGS, ACK),
        NO_PREFACE,
        greets=False,
    )
    yield Case("3.4", "a second preface", PREFACE, closed("PROTOCOL_ERROR", "FRAME_SIZE_ERROR"))


def frames() -> Iterator[Case]:
    """Section 4: what frames look like."""
    yield Case("4.1", "a frame of a type nobody knows", frame(0xBE, 0xFF, 0, b"anything"), ALIVE)
    yield Case("4.1", "one on a stream, within a call", OPENED + frame(0xBE, 0xFF, 1, b"x") + LAST, ANSWERED)
    yield Case("4.1", "flags without a meaning on PING", ping(flags=0xFE), ALIVE)
    yield Case("4.1", "flags without a meaning on SETTINGS", frame(SETTINGS, 0xFE), ALIVE)
    yield Case(
        "4.1",
        "flags without a meaning on HEADERS and DATA",
        frame(HEADERS, OPEN | 0xD2 & ~WITH_PRIORITY, 1, BLOCK) + data(1, EMPTY_MESSAGE, END_STREAM | 0xF6),
        ANSWERED,
    )
    yield Case("4.1", "the reserved bit on PING", frame(PING, 0, 1 << 31, bytes(8)), ALIVE)
    yield Case(
        "4.1",
        "the reserved bit on HEADERS and DATA",
        frame(HEADERS, OPEN, 1 << 31 | 1, BLOCK) + frame(DATA, END_STREAM, 1 << 31 | 1, EMPTY_MESSAGE),
        ANSWERED,
    )
    yield Case(
        "4.2",
        "DATA of 16,384 bytes",
        OPENED + data(1, (b"\0\0\0\x3f\xfb" + bytes(16_379))) + LAST,
        REFUSED_CALL | ANSWERED,
    )
    yield Case(
        "4.2",
        "DATA larger than announced",
        lambda peer: OPENED + _larger_than_frames(DATA, 1)(peer),
        stream_error("FRAME_SIZE_ERROR"),
    )
    for name, kind, stream in (("HEADERS", HEADERS, 1), ("SETTINGS", SETTINGS, 0), ("PING", PING, 0)):
        yield Case("4.2", f"{name} larger than announced", _larger_than_frames(kind, stream), BAD_SIZE)
    yield Case(
        "4.2",
        "a frame of an unknown type larger than announced",
        _larger_than_frames(0xBE, 0),
        BAD_SIZE | ALIVE,
    )
    yield Case(
        "4.3",
        "a header block that cannot be read",
        frame(HEADERS, WHOLE, 1, b"\x82\xff\xff\xff\xff"),
        BAD_BLOCK,
    )
    yield Case("4.3", "a header block that is cut", frame(HEADERS, WHOLE, 1, BLOCK[:-1]), BAD_BLOCK)
    for name, other in (
        ("PRIORITY", frame(PRIORITY, 0, 1, bytes(5))),
        ("HEADERS of another stream", headers(3, FIELDS)),
        ("PING", ping()),
        ("DATA", data(1, b"x")),
        ("SETTINGS", settings()),
        ("a frame of an unknown type", frame(0xBE)),
        ("WINDOW_UPDATE", window_update(0, 1)),
        ("RST_STREAM", reset(1)),
    ):
        yield Case(
            "4.3",
            f"{name} within a header block",
            frame(HEADERS, 0, 1, BLOCK[:5]) + other + frame(CONTINUATION, END_HEADERS, 1, BLOCK[5:]),
            closed("PROTOCOL_ERROR"),
        )
    yield Case(
        "4.3",
        "an entry of the table that a refused call has added",
        frame(HEADERS, WHOLE, 1, block(_with(("X-UPPER", "1"))) + b"\x40\x03x-a\x01b")
        + frame(HEADERS, OPEN, 3, BLOCK + bytes([0x80 | 62 + ADDED]))
        + data(3, EMPTY_MESSAGE, END_STREAM),
        ANSWERED,
        stream=3,
    )


def streams() -> Iterator[Case]:
    """Section 5: the states of streams, and their numbers."""
    for name, sent in (
        ("DATA", data(1, b"x")),
        ("RST_STREAM", reset(1)),
        ("WINDOW_UPDATE", window_update(1, 10)),
        ("CONTINUATION", frame(CONTINUATION, END_HEADERS, 1, BLOCK)),
    ):
        yield Case("5.1", f"{name} for an idle stream", sent, closed("PROTOCOL_ERROR"))
    yield Case("5.1", "PRIORITY for an idle stream", frame(PRIORITY, 0, 7, b"\0\0\0\0\x0f"), ALIVE)
    half = {
        "DATA": (data(1, b"x"), stream_error("STREAM_CLOSED")),
        "HEADERS": (headers(1, FIELDS), stream_error("STREAM_CLOSED")),
        "CONTINUATION": (frame(CONTINUATION, END_HEADERS, 1, b""), closed("PROTOCOL_ERROR", "STREAM_CLOSED")),
        "WINDOW_UPDATE": (window_update(1, 100), ANSWERED),
        "PRIORITY": (frame(PRIORITY, 0, 1, b"\0\0\0\0\x0f") + window_update(1, 100), ANSWERED),
        "RST_STREAM": (reset(1), ALIVE),
    }
    for name, (sent, allowed) in half.items():
        yield Case("5.1", f"{name} after END_STREAM, before the answer", HELD + sent, allowed)
    for name, sent in (
        ("DATA", data(1, b"x")),
        ("WINDOW_UPDATE", window_update(1, 10)),
        ("RST_STREAM", reset(1)),
        ("HEADERS", headers(1, FIELDS, WHOLE)),
    ):
        yield Case(
            "5.1", f"{name} after RST_STREAM", OPENED + reset(1) + sent, GONE | closed("PROTOCOL_ERROR")
        )
    yield Case(
        "5.1",
        "CONTINUATION after RST_STREAM",
        OPENED + reset(1) + frame(CONTINUATION, END_HEADERS, 1),
        closed("PROTOCOL_ERROR", "STREAM_CLOSED"),
    )
    yield Case("5.1.1", "an even number", headers(2, FIELDS, WHOLE), closed("PROTOCOL_ERROR"), stream=2)
    yield Case(
        "5.1.1",
        "a number below one that was used",
        call(5) + headers(3, FIELDS, WHOLE),
        GONE | closed("PROTOCOL_ERROR"),
        stream=3,
    )
    yield Case("5.1.1", "numbers that are left out", call(0x7FFF_FFFF), ANSWERED, stream=0x7FFF_FFFF)
    yield Case(
        "5.1.2",
        "one stream more than may be open",
        _too_many,
        stream_error("REFUSED_STREAM", "PROTOCOL_ERROR"),
        stream=0,
    )
    yield Case(
        "5.3",
        "a stream that depends on itself",
        frame(PRIORITY, 0, 1, b"\0\0\0\x01\x0f"),
        ALIVE | stream_error("PROTOCOL_ERROR"),
    )
    yield Case(
        "5.3",
        "HEADERS with a priority",
        frame(HEADERS, OPEN | WITH_PRIORITY, 1, b"\x80\0\0\0\xff" + BLOCK) + LAST,
        ANSWERED,
    )
    yield Case(
        "5.3",
        "HEADERS that depends on itself",
        frame(HEADERS, OPEN | WITH_PRIORITY, 1, b"\0\0\0\x01\xff" + BLOCK) + LAST,
        ANSWERED | stream_error("PROTOCOL_ERROR"),
    )


def data_and_headers() -> Iterator[Case]:
    """Sections 6.1 to 6.4: DATA, HEADERS, PRIORITY, RST_STREAM."""
    yield Case("6.1", "DATA on stream 0", data(0, b"x"), closed("PROTOCOL_ERROR"))
    yield Case(
        "6.1",
        "padding longer than the frame",
        OPENED + data(1, b"\x06" + EMPTY_MESSAGE, PADDED | END_STREAM),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.1",
        "padding without its length",
        OPENED + data(1, b"", PADDED | END_STREAM),
        stream_error("PROTOCOL_ERROR", "FRAME_SIZE_ERROR"),
    )
    yield Case(
        "6.1",
        "padding",
        OPENED + data(1, b"\xff" + EMPTY_MESSAGE + bytes(255), PADDED | END_STREAM),
        ANSWERED,
    )
    yield Case(
        "6.1",
        "padding that is not zeros",
        OPENED + data(1, b"\x02" + EMPTY_MESSAGE + b"ab", PADDED | END_STREAM),
        ANSWERED | closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.1",
        "padding and nothing else",
        OPENED + data(1, EMPTY_MESSAGE) + data(1, b"\x01\0", PADDED | END_STREAM),
        ANSWERED,
    )
    yield Case(
        "6.1",
        "an empty frame that ends the stream",
        OPENED + data(1, EMPTY_MESSAGE) + data(1, b"", END_STREAM),
        ANSWERED,
    )
    yield Case(
        "6.1",
        "empty frames within",
        OPENED + 5 * data(1) + data(1, EMPTY_MESSAGE) + 5 * data(1) + data(1, b"", 1),
        ANSWERED,
    )
    yield Case("6.2", "HEADERS on stream 0", frame(HEADERS, WHOLE, 0, BLOCK), closed("PROTOCOL_ERROR"))
    yield Case(
        "6.2",
        "padding longer than the frame",
        frame(HEADERS, WHOLE | PADDED, 1, b"\xff" + BLOCK),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.2", "padding", frame(HEADERS, OPEN | PADDED, 1, b"\x09" + BLOCK + bytes(9)) + LAST, ANSWERED
    )
    yield Case(
        "6.2",
        "padding and a priority",
        frame(HEADERS, OPEN | PADDED | WITH_PRIORITY, 1, b"\x02\0\0\0\0\x10" + BLOCK + bytes(2)) + LAST,
        ANSWERED,
    )
    yield Case(
        "6.2",
        "a priority that is cut",
        frame(HEADERS, WHOLE | WITH_PRIORITY, 1, bytes(4)),
        BAD_SIZE | closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.2",
        "padding where the priority should be",
        frame(HEADERS, WHOLE | PADDED | WITH_PRIORITY, 1, b"\x03" + bytes(5)),
        BAD_SIZE | closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.3", "PRIORITY on stream 0", frame(PRIORITY, 0, 0, bytes(5)), closed("PROTOCOL_ERROR") | ALIVE
    )  # whoever knows no priorities passes over all of them
    for size in (4, 6):
        yield Case(
            "6.3",
            f"PRIORITY of {size} bytes",
            OPENED + frame(PRIORITY, 0, 1, bytes(size)),
            stream_error("FRAME_SIZE_ERROR"),
        )
    yield Case("6.4", "RST_STREAM on stream 0", reset(0), closed("PROTOCOL_ERROR"))
    for size in (3, 5):
        yield Case(
            "6.4", f"RST_STREAM of {size} bytes", OPENED + frame(RST_STREAM, 0, 1, bytes(size)), BAD_SIZE
        )
    yield Case("7", "an error nobody knows in RST_STREAM", OPENED + reset(1, 0xDEAD), ALIVE)
    yield Case("5.4.2", "RST_STREAM is not answered", OPENED + reset(1), ALIVE)


def control() -> Iterator[Case]:
    """Sections 6.5 to 6.8: SETTINGS, PUSH_PROMISE, PING, GOAWAY."""
    yield Case("6.5", "an acknowledgement with a payload", frame(SETTINGS, ACK, 0, bytes(6)), BAD_SIZE)
    yield Case("6.5", "SETTINGS on a stream", frame(SETTINGS, 0, 1), closed("PROTOCOL_ERROR"))
    for size in (3, 7):
        yield Case("6.5", f"SETTINGS of {size} bytes", frame(SETTINGS, 0, 0, bytes(size)), BAD_SIZE)
    for name, number, value, error in (
        ("ENABLE_PUSH", ENABLE_PUSH, 2, "PROTOCOL_ERROR"),
        ("INITIAL_WINDOW_SIZE", INITIAL_WINDOW_SIZE, 1 << 31, "FLOW_CONTROL_ERROR"),
        ("MAX_FRAME_SIZE", MAX_FRAME_SIZE, 16_383, "PROTOCOL_ERROR"),
        ("MAX_FRAME_SIZE", MAX_FRAME_SIZE, 1 << 24, "PROTOCOL_ERROR"),
        ("ENABLE_CONNECT_PROTOCOL", ENABLE_CONNECT_PROTOCOL, 2, "PROTOCOL_ERROR"),
    ):
        yield Case("6.5.2", f"{name} = {value}", settings((number, value)), closed(error))
    for name, number, value in (
        ("HEADER_TABLE_SIZE", HEADER_TABLE_SIZE, 0),
        ("HEADER_TABLE_SIZE", HEADER_TABLE_SIZE, 2**32 - 1),
        ("ENABLE_PUSH", ENABLE_PUSH, 0),
        ("MAX_CONCURRENT_STREAMS", MAX_CONCURRENT_STREAMS, 0),
        ("MAX_FRAME_SIZE", MAX_FRAME_SIZE, 2**24 - 1),
        ("MAX_HEADER_LIST_SIZE", MAX_HEADER_LIST_SIZE, 4096),
        ("a setting nobody knows", 0xFFF0, 7),
    ):
        yield Case("6.5.2", f"{name} = {value}, then a call", settings((number, value)) + call(), ANSWERED)
    yield Case(
        "6.5.3",
        "of two values in one frame the last counts",
        settings((INITIAL_WINDOW_SIZE, 1 << 30), (INITIAL_WINDOW_SIZE, 5))
        + settings((INITIAL_WINDOW_SIZE, 65_535))
        + call(),
        ANSWERED,
    )
    yield Case(
        "6.5.3",
        "an acknowledgement nobody has asked for",
        3 * frame(SETTINGS, ACK),
        ALIVE | closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.6",
        "PUSH_PROMISE by a client",
        OPENED + frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02" + BLOCK),
        closed("PROTOCOL_ERROR"),
    )
    yield Case("6.7", "an acknowledgement of a ping nobody has sent", ping(flags=ACK), ALIVE)
    yield Case("6.7", "PING on a stream", frame(PING, 0, 1, bytes(8)), closed("PROTOCOL_ERROR"))
    for size in (0, 7, 9):
        yield Case("6.7", f"PING of {size} bytes", frame(PING, 0, 0, bytes(size)), BAD_SIZE)
    yield Case("6.8", "GOAWAY on a stream", frame(GOAWAY, 0, 1, bytes(8)), closed("PROTOCOL_ERROR"))
    yield Case("6.8", "GOAWAY of 7 bytes", frame(GOAWAY, 0, 0, bytes(7)), BAD_SIZE)
    yield Case(
        "6.8",
        "a call that is open when the client sends GOAWAY",
        OPENED + frame(GOAWAY, 0, 0, bytes(8)) + LAST,
        ANSWERED | {"answered, closed"},
    )
    yield Case(
        "7",
        "an error nobody knows in GOAWAY",
        OPENED + frame(GOAWAY, 0, 0, bytes(4) + b"\0\0\xde\xadwhy") + LAST,
        ANSWERED | {"answered, closed"},
    )


def windows() -> Iterator[Case]:
    """Sections 6.9 and 6.10: flow control, CONTINUATION."""
    yield Case("6.9", "an increment of 0 for the connection", window_update(0, 0), closed("PROTOCOL_ERROR"))
    yield Case(
        "6.9", "an increment of 0 for a stream", OPENED + window_update(1, 0), stream_error("PROTOCOL_ERROR")
    )
    for size in (3, 5):
        yield Case("6.9", f"WINDOW_UPDATE of {size} bytes", frame(WINDOW_UPDATE, 0, 0, bytes(size)), BAD_SIZE)
    yield Case("6.9", "the reserved bit of an increment", HELD + window_update(1, 1 << 31 | 100), ANSWERED)
    yield Case(
        "6.9.1",
        "a window of the connection beyond 2³¹ - 1",
        window_update(0, 2**31 - 1),
        closed("FLOW_CONTROL_ERROR"),
    )
    yield Case(
        "6.9.1",
        "a window of a stream beyond 2³¹ - 1",
        OPENED + window_update(1, 2**31 - 1),
        stream_error("FLOW_CONTROL_ERROR"),
    )
    yield Case(
        "6.9.2",
        "a window of a stream beyond 2³¹ - 1 by a setting",
        OPENED + window_update(1, 2**31 - 65_536) + settings((INITIAL_WINDOW_SIZE, 65_536 * 2)),
        stream_error("FLOW_CONTROL_ERROR"),
    )
    yield Case(
        "6.9.2",
        "an open stream's window that a setting opens",
        HELD + settings((INITIAL_WINDOW_SIZE, 100)),
        ANSWERED,
    )
    yield Case(
        "6.9.2",
        "a window below 0",
        settings((INITIAL_WINDOW_SIZE, 3))
        + call()
        + settings((INITIAL_WINDOW_SIZE, 1))
        + window_update(1, 100),
        ANSWERED,
    )
    yield Case(
        "6.10",
        "CONTINUATION without HEADERS",
        frame(CONTINUATION, END_HEADERS, 1, BLOCK),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.10",
        "CONTINUATION after END_HEADERS",
        OPENED + frame(CONTINUATION, END_HEADERS, 1, BLOCK),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.10",
        "CONTINUATION after the last one",
        _split(5)[: -len(LAST)] + frame(CONTINUATION, END_HEADERS, 1, b""),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.10",
        "CONTINUATION on stream 0",
        frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 0),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.10",
        "CONTINUATION of another stream",
        frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3),
        closed("PROTOCOL_ERROR"),
    )
    yield Case(
        "6.10",
        "CONTINUATION after DATA",
        OPENED + data(1, EMPTY_MESSAGE) + frame(CONTINUATION, END_HEADERS, 1, b""),
        closed("PROTOCOL_ERROR"),
    )
    yield Case("6.10", "a header block in two pieces", _split(7), ANSWERED)
    yield Case("6.10", "a header block in five pieces, one of them empty", _split(0, 1, 1, 10), ANSWERED)


def messages() -> Iterator[Case]:
    """Section 8: what is not a request."""
    yield Case(
        "8.1", "trailers", OPENED + data(1, EMPTY_MESSAGE) + headers(1, [("x-end", "1")], WHOLE), ANSWERED
    )
    yield Case(
        "8.1",
        "a second header block that does not end the stream",
        OPENED + headers(1, [("x-end", "1")]),
        MALFORMED,
    )
    yield Case(
        "8.1",
        "DATA after trailers",
        settings((INITIAL_WINDOW_SIZE, 0))
        + OPENED
        + data(1, EMPTY_MESSAGE)
        + headers(1, [("x-end", "1")], WHOLE)
        + data(1, b"x"),
        stream_error("STREAM_CLOSED"),
    )
    for name, value, body in (
        ("less DATA than content-length says", "6", data(1, EMPTY_MESSAGE, END_STREAM)),
        ("more DATA than content-length says", "4", data(1, EMPTY_MESSAGE, END_STREAM)),
        ("more DATA in several frames", "4", data(1, bytes(3)) + data(1, bytes(2), END_STREAM)),
        ("a content-length that is no number", "5x", LAST),
        ("a negative content-length", "-5", LAST),
    ):
        yield Case("8.1.1", name, headers(1, _with(("content-length", value))) + body, MALFORMED)
    yield Case(
        "8.1.1", "no DATA, but a content-length", headers(1, _with(("content-length", "5")), WHOLE), MALFORMED
    )
    yield Case(
        "8.1.1",
        "two content-lengths",
        _asked(_with(("content-length", "5"), ("content-length", "6"))),
        MALFORMED,
    )
    yield Case("8.1.1", "a content-length that is right", _asked(_with(("content-length", "5"))), ANSWERED)
    for what, name in {
        "capitals": b"X-Upper",
        "a space": b"x y",
        "a colon": b"x:y",
        "NUL": b"x\0y",
        "a line end": b"x\ny",
        "a byte above 127": b"x\x80",
        "DEL": b"x\x7f",
        "nothing": b"",
    }.items():
        yield Case("8.2.1", f"a name with {what}", _extra(name, b"1"), MALFORMED)
    for what, value in {
        "NUL": b"a\0b",
        "CR": b"a\rb",
        "LF": b"a\nb",
    }.items():
        yield Case("8.2.1", f"a value with {what}", _extra(b"x-a", value), MALFORMED)
    for what, value in {"a space before it": b" a", "a tab after it": b"a\t"}.items():
        yield Case("8.2.1", f"a value with {what}", _extra(b"x-a", value), MALFORMED | ANSWERED)
    yield Case("8.2.1", "a value of bytes above 127", _extra(b"x-a", b"\xc3\xa9\xff"), ANSWERED)
    yield Case("8.2.1", "an empty value", _extra(b"x-a", b""), ANSWERED)
    for name, value in (
        ("connection", "keep-alive"),
        ("proxy-connection", "keep-alive"),
        ("keep-alive", "5"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
    ):
        yield Case("8.2.2", f"the header {name}", _asked(_with((name, value))), MALFORMED)
    yield Case("8.2.2", "te that is not trailers", _replaced("te", "trailers, deflate"), MALFORMED)
    yield Case("8.2.3", "cookies in pieces", _asked(_with(("cookie", "a=b"), ("cookie", "c=d"))), ANSWERED)
    yield Case("8.3", "a pseudo-header nobody knows", _asked(_with((":x", "1"), at=0)), MALFORMED)
    yield Case("8.3", "a pseudo-header of responses", _asked(_with((":status", "200"), at=0)), MALFORMED)
    yield Case(
        "8.3", "a pseudo-header after others", _asked([*FIELDS[:3], ("x-a", "1"), *FIELDS[3:]]), MALFORMED
    )
    yield Case(
        "8.3",
        "a pseudo-header in trailers",
        OPENED + data(1, EMPTY_MESSAGE) + headers(1, [(":method", "POST")], WHOLE),
        MALFORMED,
    )
    for name in (":method", ":scheme", ":path"):
        yield Case("8.3.1", f"no {name}", _without(name), MALFORMED)
    for name, value in FIELDS[:4]:
        yield Case("8.3.1", f"{name} twice", _asked(_with((name, value), at=0)), MALFORMED)
    yield Case("8.3.1", "an empty :path", _replaced(":path", ""), MALFORMED)
    yield Case("8.3.1", "a :path without a slash", _replaced(":path", "inference"), MALFORMED | REFUSED_CALL)
    yield Case(
        "8.3.1",
        "the :path * of another method than OPTIONS",
        _replaced(":path", "*"),
        MALFORMED | REFUSED_CALL,
    )
    yield Case("8.3.1", "a :method that is no token", _replaced(":method", "PO ST"), MALFORMED | REFUSED_CALL)
    yield Case("8.3.1", "a :scheme that is none", _replaced(":scheme", "1:"), MALFORMED)
    yield Case("8.3.1", "an :authority with a space", _replaced(":authority", "a b"), MALFORMED)
    yield Case("8.3.1", "no :authority", _without(":authority"), ANSWERED | MALFORMED)
    yield Case(
        "8.3.1", "host instead of :authority", _asked([*FIELDS[:3], *FIELDS[4:], ("host", "t")]), ANSWERED
    )
    yield Case("8.5", "CONNECT with :scheme and :path", _replaced(":method", "CONNECT"), MALFORMED)
    yield Case(
        "8.5", "CONNECT", _asked([(":method", "CONNECT"), (":authority", "t:1")]), MALFORMED | REFUSED_CALL
    )
    yield Case(
        "8.5",
        "CONNECT with a :protocol that was not offered",
        _asked([*_with((":protocol", "websocket"), at=0)]),
        MALFORMED,
    )


def compression() -> Iterator[Case]:
    """RFC 7541: how header blocks are compressed."""
    yield Case("H2.3.3", "an index beyond the table", _hpack(b"\xbe\xfe"), BAD_BLOCK)
    yield Case("H2.3.3", "an index far beyond the table", _hpack(b"\xff\xff\xff\x07"), BAD_BLOCK)
    yield Case("H2.3.3", "the name of an index beyond the table", _hpack(b"\x7f\x80\x01\x01a"), BAD_BLOCK)
    yield Case("H4.2", "a change of the table's size at the end of a block", _hpack(b"\x20"), BAD_BLOCK)
    yield Case(
        "H4.2",
        "a change of the table's size within a block",
        frame(HEADERS, OPEN, 1, BLOCK[:1] + b"\x20" + BLOCK[1:]) + LAST,
        BAD_BLOCK,
    )
    yield Case(
        "H4.2",
        "two changes of the table's size before a block",
        _hpack(b"", before=b"\x20\x3f\xe1\x1f"),
        ANSWERED,
    )
    yield Case(
        "H4.4", "an entry larger than the table", _hpack(b"\x40\x01x\x7f\xf1\x1f" + b"a" * 4208), ANSWERED
    )
    yield Case("H5.1", "a number without an end", _hpack(b"\xff" + b"\xff" * 20), BAD_BLOCK)
    yield Case(
        "H5.1", "a number in more bytes than it needs", _hpack(b"\x0f\x80\x00\x01a"), BAD_BLOCK | ANSWERED
    )
    yield Case("H5.2", "a text longer than the block", _hpack(b"\x00\x01x\x05a"), BAD_BLOCK)
    yield Case(
        "H5.2", "Huffman code with more than 7 bits of padding", _hpack(b"\x00\x01x\x82\x1f\xff"), BAD_BLOCK
    )
    yield Case("H5.2", "Huffman code with padding that is not ones", _hpack(b"\x00\x01x\x81\x18"), BAD_BLOCK)
    yield Case(
        "H5.2", "Huffman code with its end within", _hpack(b"\x00\x01x\x84\xff\xff\xff\xff"), BAD_BLOCK
    )
    yield Case(
        "H5.2",
        "all of it in Huffman code",
        frame(HEADERS, OPEN, 1, block(FIELDS, huffman=True)) + LAST,
        ANSWERED,
    )
    yield Case("H6.1", "the index 0", _hpack(b"\x80"), BAD_BLOCK)
    for name, sent in (
        ("added to the table, with a new name", b"\x40\x03x-a\x01b"),
        ("added to the table, with a known name", b"\x7a\x01b"),
        ("not added, with a new name", b"\x00\x03x-a\x01b"),
        ("not added, with a known name", b"\x0f\x2b\x01b"),
        ("never to be added, with a new name", b"\x10\x03x-a\x01b"),
        ("never to be added, with a known name", b"\x1f\x2b\x01b"),
        ("in the table twice over", b"\x40\x03x-a\x01b\xbe\xbe"),
    ):
        yield Case("H6.2", f"a header {name}", _hpack(sent), ANSWERED)
    yield Case("H6.3", "a table larger than announced", _hpack(b"", before=b"\x3f\xe1\xff\x03"), BAD_BLOCK)


CASES = [
    *preface(),
    *frames(),
    *streams(),
    *data_and_headers(),
    *control(),
    *windows(),
    *messages(),
    *compression(),
]
