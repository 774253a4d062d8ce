"""The HTTP transport against servers that answer as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tritonpy_bench import BenchError
from tritonpy_bench.answers import Reader
from tritonpy_bench.calls import Place
from tritonpy_bench.http_transport import HttpTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
EVENTS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = b"request\n"


class Waiting:
    """A call that is waited for; satisfies `Call`."""

    def __init__(self, sent_ns: int = 1 << 62) -> None:
        self.sent_ns = sent_ns
        self.response_count = 0
        self.outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def responded(self, came_ns: int = 0) -> None:
        self.response_count += 1

    def answered(self, error: str | None, came_ns: int = 0) -> None:
        self.outcome.set_result(error)


@asynccontextmanager
async def serving(answers: list[bytes | None], **options: Any) -> AsyncIterator[HttpTransport]:
    """A transport to a server that answers each line with the next of the answers; None closes."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while await reader.readline():
            answer = answers.pop(0)
            if answer is None:
                break
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(Place("127.0.0.1", server.sockets[0].getsockname()[1]), 30, **options)
    try:
        yield transport
    finally:
        await transport.close()
        for writer in writers:
            writer.close()
        server.close()


async def ask(transport: HttpTransport, sent_ns: int = 1 << 62) -> tuple[str | None, int]:
    call = Waiting(sent_ns)
    transport.send(REQUEST, call)
    return await call.outcome, call.response_count


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, None),
        (b'HTTP/1.1 400 Bad\r\nContent-Length: 15\r\n\r\n{"error":"why"}', "HTTP 400: why"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", "HTTP 503: busy"),
        (None, "the server closed the connection without an answer"),
        (b"garbage\r\n\r\n", "what the server answered is no HTTP: "),
    ],
)
async def test_answers_and_what_comes_after_them(answer: bytes | None, expected: str | None) -> None:
    async with serving([answer, OK]) as transport:
        await transport.open(1)

        error, _ = await ask(transport)
        again, _ = await ask(transport)

    assert error == expected if expected is None else str(error).startswith(expected)
    assert again is None


async def test_an_answer_of_lists_too_deep_to_read_ends_its_request() -> None:
    body = b"[" * 200_000
    deep = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving([deep, OK], reader=Reader({})) as transport:
        error, _ = await ask(transport)
        again, _ = await ask(transport)

    assert str(error).startswith("what the server answered is no response: [[[")
    assert again == "what the server answered is no response: {}"


async def test_a_connection_that_the_server_closes_after_an_answer_is_not_used_again() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    async with serving([closing, OK]) as transport:
        assert [await ask(transport), await ask(transport)] == [(None, 0), (None, 0)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([b'data: {"a":1}\n\ndata: {"a":2}\n\n'], (None, 2)),
        ([b'data: {"a"', b":1}\n", b"\n"], (None, 1)),
        ([b'data: {"a":1}\n\n', b'data: {"error":"why"}\n\n'], ("why", 1)),
        ([], (None, 0)),
    ],
)
async def test_events_are_responses(events: list[bytes], expected: tuple[str | None, int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
    async with serving([EVENTS + body, EVENTS + b"0\r\n\r\n"], has_events=True) as transport:
        assert await ask(transport) == expected
        assert await ask(transport) == (None, 0)


async def test_a_stream_of_events_that_breaks_off_has_failed() -> None:
    async with serving([EVENTS + b'f\r\ndata: {"a":1}\n\n\r\n', None], has_events=True) as transport:
        call = Waiting()
        transport.send(REQUEST * 2, call)

        assert await call.outcome == "the server closed the connection without an answer"
    assert call.response_count == 1


async def test_a_call_without_an_answer_fails_after_its_time() -> None:
    async with serving([b""]) as transport:
        await transport.open(1)
        error, _ = await ask(transport, sent_ns=0)

    assert error == "no answer within 30 s"


async def test_nothing_listens() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    place = Place("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    transport = HttpTransport(place, 30)

    with pytest.raises(BenchError, match=r"no server answers at 127\.0\.0\.1"):
        await transport.open(2)
    error, _ = await ask(transport)
    await transport.close()

    assert str(error).startswith("no connection: ")
