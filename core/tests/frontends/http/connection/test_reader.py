"""What of a request is read, driven by hand."""

from __future__ import annotations

import pytest
from tritonpy.frontends.admission import Admission
from tritonpy.frontends.http.connection.limits import CHUNK_FRAMING, MOST_HEADER_BYTES
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.frontends.http.connection.reader import RequestReader

GET = b"GET / HTTP/1.1\r\nHost: t\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab"


class Receiver:
    """Takes what a reader finds."""

    def __init__(self) -> None:
        self.reader = RequestReader(self, Admission(0), 1 << 20)
        self.requests: list[HttpRequest] = []
        self.refusals: list[bytes] = []

    def feed(self, data: bytes, piece: int = 1 << 18) -> None:
        for start in range(0, len(data), piece):
            if not self.refusals:
                self.reader.feed(memoryview(data[start : start + piece]))

    def on_request(self, request: HttpRequest, held: int) -> None:
        self.requests.append(request)

    def on_expectation(self, request: HttpRequest) -> None: ...

    def on_refusal(self, response: bytes) -> None:
        self.refusals.append(response)
        self.reader.discard()

    def on_lack_of_room(self) -> None: ...


ENDLESS = {
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
