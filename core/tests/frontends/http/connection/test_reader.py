"""What of a request is read, driven by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.admission import Admission
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.connection.limits import (
    CHUNK_FRAMING,
    LARGE_BODY,
    MOST_CHUNKS,
    MOST_HEADER_BYTES,
    check_size,
)
from tritonpy.frontends.http.connection.message import HttpRequest, Refused
from tritonpy.frontends.http.connection.reader import RequestReader

JSON_LIMIT = 1 << 20
GET = b"GET / HTTP/1.1\r\nHost: t\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab"


class Receiver:
    """Takes what a reader finds.

    Args:
        limit: bytes held at once.
        pattern: of the headers that are kept.
    """

    def __init__(self, limit: int = 0, pattern: str = "") -> None:
        self.admission = Admission(limit)
        forwarding = HeaderForwarding(pattern, "--flag") if pattern else None
        self.reader = RequestReader(self, self.admission, JSON_LIMIT, forwarding)
        self.requests: list[HttpRequest] = []
        self.refusals: list[bytes] = []
        self.expectations: list[str] = []
        self.lacks = 0

    def feed(self, data: bytes, piece: int = 1 << 18) -> None:
        for start in range(0, len(data), piece):
            self.take(data[start : start + piece])

    def take(self, data: bytes) -> None:
        """Read what came at once, as a connection does."""
        while data and not self.refusals:
            if self.reader.view is None:
                self.reader.feed(memoryview(data))
                return
            rest = self.reader.rest
            size = min(len(rest), len(data))
            rest[:size], data = data[:size], data[size:]
            self.reader.body_arrived(size)

    def on_request(self, request: HttpRequest) -> None:
        self.requests.append(request)

    def on_expectation(self, request: HttpRequest) -> None:
        self.expectations.append(request.path)
        if request.path == "/none":
            raise Refused(b"no")

    def on_refusal(self, response: bytes) -> None:
        self.refusals.append(response)
        self.reader.discard()

    def on_large_body(self, request: HttpRequest, byte_size: int) -> None:
        check_size(request.headers, byte_size, JSON_LIMIT)

    def on_lack_of_room(self) -> None:
        self.lacks += 1


ENDLESS = {
    "a path": (b"GET /", b"x"),
    "blank lines": (b"", b"\r\n"),
    "the name of a header": (GET, b"x"),
    "the value of a header": (GET + b"X: ", b"x"),
    "blanks before a value": (GET + b"X:", b" "),
    "headers": (GET, b"X: y\r\n"),
    "leading zeros": (CHUNKED, b"0"),
    "the extension of a chunk": (CHUNKED + b"1;", b"x"),
    "leading zeros of chunks": (CHUNKED, b"0" * 99 + b"1\r\na\r\n"),
    "extensions of chunks": (CHUNKED, b"1;" + b"x" * 99 + b"\r\na\r\n"),
    "the name of a trailer": (CHUNKED + b"0\r\n", b"x"),
    "the value of a trailer": (CHUNKED + b"0\r\nX: ", b"x"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
}


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("kind", ENDLESS)
def test_what_is_no_body_is_refused_beyond_its_budget(kind: str, piece: int) -> None:
    begin, endless = ENDLESS[kind]
    receiver = Receiver()
    receiver.feed(GET + b"\r\n")
    sent = begin + endless * (MOST_HEADER_BYTES * 5 // 4 // len(endless) + 1)

    receiver.feed(sent, piece)

    [refusal] = receiver.refusals
    assert refusal.startswith(b"HTTP/1.1 431 ")
    assert b"the request's headers exceed 65536 bytes" in refusal
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
def test_ordinary_chunks_have_a_budget_of_their_own(piece: int) -> None:
    receiver = Receiver()
    count = 20_000
    receiver.feed(CHUNKED + b"00001;a=b\r\n?\r\n" * count + b"0\r\nX: y\r\n\r\n", piece)

    assert len(b"00001;a=b\r\n\r\n") < CHUNK_FRAMING
    assert not receiver.refusals
    assert [len(request.body) for request in receiver.requests] == [count]


def test_bodies_do_not_count() -> None:
    receiver = Receiver()
    size = 4 * MOST_HEADER_BYTES
    for body in (
        b"Content-Length: 16000\r\n\r\n" + bytes(16_000),
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size)),
    ):
        receiver.feed(b"POST / HTTP/1.1\r\nHost: t\r\n" + body, 1000)

    assert not receiver.refusals
    assert [len(request.body) for request in receiver.requests] == [16_000, size]


def test_each_request_of_a_connection_has_the_whole_budget() -> None:
    receiver = Receiver()
    for _ in range(3):
        receiver.feed(b"\r\n" * 1000 + GET + b"X: " + b"x" * 60_000 + b"\r\n\r\n", 1000)

    assert not receiver.refusals
    assert len(receiver.requests) == 3


def test_the_headers_of_pipelined_requests_are_not_counted_together() -> None:
    receiver = Receiver()
    receiver.feed((GET + b"\r\n") * 3000 + GET)  # the last one in pieces, behind far more than 64 KiB
    receiver.feed(b"\r\n")

    assert not receiver.refusals
    assert len(receiver.requests) == 3001


# Any split of the bytes gives the same requests.

BODIES = st.one_of(
    st.binary(max_size=40),
    st.integers(LARGE_BODY - 2, LARGE_BODY + 2).map(lambda size: b"b" * size),
    st.just(b"l" * 50_000),
)
OFFER = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


@dataclass
class Sent:
    """A request as bytes, and what is to be found in them."""

    wire: bytes
    path: str
    body: bytes


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    target, path = draw(
        st.sampled_from(
            [
                (b"/a?b=c", "/a"),
                (b"/", "/"),
                (b"http://host:80/x/y?z", "/x/y"),
                (b"http://host", "/"),
                (b"/caf%C3%A9", "/caf%C3%A9"),
            ]
        )
    )
    blank = draw(st.sampled_from([b"", b"\r\n"]))
    head = b"%bPOST %b HTTP/1.1\r\nHost: t\r\n" % (blank, target)
    head += draw(st.sampled_from([b"", OFFER, b"X-A: 1\r\nx-a: 2\r\n"]))
    body = draw(BODIES)
    if draw(st.booleans()) and OFFER not in head:
        pieces = [body[start : start + 7000] for start in range(0, len(body), 7000)]
        pieces += [bytes([byte]) for byte in draw(st.binary(max_size=3))]
        extension = draw(st.sampled_from([b"", b";a=b"]))
        trailer = draw(st.sampled_from([b"", b"X-A: 3\r\n"]))
        chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        return Sent(head + chunks + b"0\r\n" + trailer + b"\r\n", path, b"".join(pieces))
    return Sent(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body), path, body)


@settings(max_examples=200, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=4), st.data())
def test_any_split_of_the_bytes_gives_the_same_requests(sent: list[Sent], data: st.DataObject) -> None:
    wire = b"".join(each.wire for each in sent)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire)), max_size=30)))
    receiver = Receiver()
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        receiver.take(wire[start:end])

    assert receiver.refusals == []
    assert [(request.path, bytes(request.body)) for request in receiver.requests] == [
        (each.path, each.body) for each in sent
    ]
    for request in receiver.requests:
        assert request.method == b"POST"
        assert request.keep_alive
        assert request.headers.get(b"x-a", b"1") == b"1"  # the first of two, and no trailer
        assert request.held == len(request.body)
    assert receiver.admission.held == sum(len(each.body) for each in sent)
    assert not receiver.reader.is_mid_message


@pytest.mark.parametrize("piece", [1, 5, 1000])
def test_a_request_that_comes_in_pieces_says_when_it_began(piece: int) -> None:
    receiver = Receiver()
    receiver.feed(SIZED + b"cde" + GET + b"\r\n", piece)
    first, second = receiver.requests

    assert (first.begun_ns > 0) is (piece < 1000)
    assert second.begun_ns >= first.begun_ns


# What a reader says of the request that arrives.


def test_a_reader_says_how_far_a_request_has_come() -> None:
    receiver = Receiver()
    reader = receiver.reader

    def seen() -> tuple[int, bool, bool, int, int]:
        return reader.number, reader.is_mid_message, reader.is_in_head, reader.received, reader.announced

    assert seen() == (1, False, False, 0, 0)
    receiver.feed(SIZED[:20])
    assert seen() == (1, True, True, 0, 0)
    receiver.feed(SIZED[20:])
    assert seen() == (1, True, False, 2, 5)
    receiver.feed(b"cde")
    assert seen() == (2, False, False, 0, 0)


def test_a_small_body_is_counted_when_it_is_announced_and_a_large_one_as_it_comes() -> None:
    receiver = Receiver()
    receiver.feed(SIZED)
    assert receiver.reader.held == receiver.admission.held == 5
    receiver.feed(b"cde")
    receiver.feed(b"POST / HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + bytes(300_000), 10_000)
    assert receiver.reader.held == 300_000
    assert receiver.admission.held == 300_005

    receiver.reader.discard()

    assert receiver.reader.held == 0
    assert receiver.admission.held == 5  # that of a complete request is the receiver's to release


def test_a_large_body_is_received_where_its_request_points_to() -> None:
    receiver = Receiver()
    head = b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"
    receiver.feed(head)
    assert receiver.reader.view is not None
    receiver.reader.rest[:] = bytes(range(250)) * 400
    received = receiver.reader.view
    receiver.reader.body_arrived(100_000)

    [request] = receiver.requests
    assert request.body is received
    receiver.feed(GET + b"\r\n")  # what follows is read again
    assert len(receiver.requests) == 2


def test_the_receiver_is_told_that_there_is_no_room_whatever_the_form_of_the_body() -> None:
    for body in (
        b"Content-Length: 101\r\n\r\n",
        b"Content-Length: 90000\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + bytes(101),
    ):
        receiver = Receiver(limit=100)
        receiver.feed(b"POST / HTTP/1.1\r\n" + body)

        assert receiver.lacks == 1


def test_the_last_bytes_of_a_request_need_no_room() -> None:
    receiver = Receiver(limit=100_000)
    receiver.feed(b"POST / HTTP/1.1\r\nContent-Length: 100001\r\n\r\n" + bytes(100_001), 1000)

    assert receiver.lacks == 0  # it is complete, and will be answered
    assert len(receiver.requests) == 1


# Older clients, and clients that ask first.


@pytest.mark.parametrize(
    ("line", "header", "keep_alive", "is_http_1_0"),
    [
        (b"HTTP/1.1", b"", True, False),
        (b"HTTP/1.1", b"Connection: close\r\n", False, False),
        (b"HTTP/1.9", b"", True, False),
        (b"HTTP/1.0", b"", False, True),
        (b"HTTP/1.0", b"Connection: keep-alive\r\n", True, True),
    ],
)
def test_version_and_connection_are_understood(
    line: bytes, header: bytes, keep_alive: bool, is_http_1_0: bool
) -> None:
    receiver = Receiver()
    receiver.feed(b"GET / %b\r\n%b\r\n" % (line, header))
    [request] = receiver.requests

    assert (request.keep_alive, request.is_http_1_0) == (keep_alive, is_http_1_0)


@pytest.mark.parametrize(
    ("head", "asks"),
    [
        (b"POST /a HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", True),
        (b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: what you like\r\n\r\n", True),
        (b"POST /a HTTP/1.1\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n", False),
        (b"GET /a HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", False),
        (b"POST /a HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", False),
        (b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n", False),
    ],
)
def test_who_waits_for_a_word_before_its_body_is_noticed(head: bytes, asks: bool) -> None:
    receiver = Receiver()
    receiver.feed(head)
    assert receiver.expectations == ["/a"] * asks
    assert receiver.reader.is_awaited is asks
    receiver.reader.discard()

    assert not receiver.reader.is_awaited


def test_the_answer_to_a_body_that_is_not_wanted_is_the_refusal() -> None:
    receiver = Receiver()
    receiver.feed(b"POST /none HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")

    assert receiver.refusals == [b"no"]


def test_forwarded_headers_are_kept_as_they_were_written_and_trailers_are_not() -> None:
    receiver = Receiver(pattern="X-.*")
    receiver.feed(
        b"POST / HTTP/1.1\r\nX-One: a\r\nHost: t\r\nX-one: b\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\nX-Two: c\r\n\r\n" + GET + b"\r\n",
        3,
    )

    assert [request.forwarded for request in receiver.requests] == [
        [(b"X-One", b"a"), (b"X-one", b"b")],
        None,
    ]


# Limits.


@pytest.mark.parametrize(
    ("count", "is_refused"), [(MOST_CHUNKS, False), (MOST_CHUNKS + 1, True)], ids=["as many", "one more"]
)
def test_a_body_may_come_in_so_many_chunks(count: int, is_refused: bool) -> None:
    receiver = Receiver()
    receiver.feed(CHUNKED + b"1\r\nx\r\n" * count + b"0\r\n\r\n")

    assert [refusal[9:12] for refusal in receiver.refusals] == [b"400"] * is_refused
    assert all(b"exceeds maximum of 65536 non-empty chunks" in refusal for refusal in receiver.refusals)
    assert len(receiver.requests) == (not is_refused)


LIMIT = 1 << 20
BINARY = b"Inference-Header-Content-Length: 100\r\n"


@pytest.mark.parametrize(
    ("headers", "size", "is_refused"),
    [
        (b"", LIMIT, False),
        (b"", LIMIT + 1, True),
        (BINARY, LIMIT + 1, False),
        (b"Inference-Header-Content-Length: 0\r\n", LIMIT + 1, True),
        (b"Inference-Header-Content-Length: x\r\n", LIMIT + 1, True),
        (b"Inference-Header-Content-Length: %d\r\n" % (LIMIT + 1), LIMIT + 2, True),
        (BINARY + b"Content-Encoding: gzip\r\n", LIMIT + 1, True),
        (BINARY + b"Content-Encoding: identity\r\n", LIMIT + 1, False),
    ],
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_what_may_be_json_may_be_so_large(
    headers: bytes, size: int, is_refused: bool, is_chunked: bool
) -> None:
    receiver = Receiver()
    head = b"POST / HTTP/1.1\r\n" + headers
    if is_chunked:
        receiver.feed(
            head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + bytes(size) + b"\r\n0\r\n\r\n"
        )
    else:
        receiver.feed(head + b"Content-Length: %d\r\n\r\n" % size + bytes(size))

    assert [refusal[9:12] for refusal in receiver.refusals] == [b"400"] * is_refused
    for refusal in receiver.refusals:
        assert b"size of %d bytes exceeds the maximum allowed value of 1048576 bytes" % size in refusal
        assert b"Use --http-max-input-size to increase the limit." in refusal
    assert [len(request.body) for request in receiver.requests] == [size] * (not is_refused)
    assert receiver.admission.held == (0 if is_refused else size)


@pytest.mark.parametrize("size", [2**62, 2**64 - 1])
def test_a_body_for_which_there_is_no_memory_is_refused(size: int) -> None:
    receiver = Receiver()
    receiver.feed(b"POST / HTTP/1.1\r\n" + BINARY + b"Content-Length: %d\r\n\r\n" % size)

    [refusal] = receiver.refusals
    assert refusal[9:12] == b"400"
    assert b"request of %d bytes cannot be received: there is no memory for it" % size in refusal
    assert b"--max-inflight-bytes" in refusal


# What is no request.


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no request\r\n\r\n", 400),
        (b"GET / FTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET\r\n\r\n", 400),
        (b"\0" * 100, 400),
        (b"BREW / HTTP/1.1\r\n\r\n", 405),
        (b"\r\nBREW / HTTP/1.1\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (CHUNKED + b"x\r\n", 400),
        (CHUNKED + b"1\r\nabc", 400),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_what_is_no_request_is_refused_once(sent: bytes, status: int, piece: int) -> None:
    receiver = Receiver()
    receiver.feed(GET + b"\r\n")
    receiver.feed(sent, piece)

    if status == 405 and piece == 1:
        status = 400  # the line that names the method is not there any more
    assert [refusal[9:12] for refusal in receiver.refusals] == [b"%d" % status]
    assert len(receiver.requests) == 1
    assert receiver.admission.held == 0


def test_a_receiver_that_fails_is_a_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()

    def fail(request: HttpRequest) -> None:
        raise ValueError("of course")

    receiver.on_request = fail  # type: ignore[method-assign]
    receiver.feed(GET + b"\r\n")

    [refusal] = receiver.refusals
    assert refusal.startswith(b"HTTP/1.1 500 ")
    assert b"the request could not be read: ValueError: of course" in refusal
    assert "a request could not be read" in caplog.text
