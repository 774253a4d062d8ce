"""Bodies that are written piece by piece, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from tritonpy.admission import Admission
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.frontends.http.connection.protocol import HttpProtocol, Port
from tritonpy.frontends.http.connection.stream import ResponseStream

REQUEST = b"POST /generate HTTP/1.%d\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi"


class Streamer:
    """Opens a stream for each request, and lets the test write it; satisfies `Handler`."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[ResponseStream] = asyncio.Queue()
        self.lost = asyncio.Event()

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        connection.watch(self._lose)
        self.streams.put_nowait(connection.start_stream(200, b"text/event-stream"))

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        return None

    def _lose(self) -> None:
        assert not self.lost.is_set()
        self.lost.set()


@pytest.fixture
def streamer() -> Streamer:
    return Streamer()


@pytest.fixture
async def port(streamer: Streamer) -> AsyncIterator[int]:
    opened: set[HttpProtocol] = set()
    closed = asyncio.Event()

    def forget(connection: HttpProtocol) -> None:
        opened.remove(connection)
        closed.set()

    scratch = memoryview(bytearray(65536))
    shared = Port(streamer, Admission(0), 1000, scratch, opened.add, forget)
    server = await asyncio.get_running_loop().create_server(lambda: HttpProtocol(shared), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    while opened:  # until it has heard that their clients are gone
        closed.clear()
        await asyncio.wait_for(closed.wait(), 20)


async def test_pieces_travel_as_chunks_and_the_connection_goes_on(streamer: Streamer, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(REQUEST % 1)
        stream = await streamer.streams.get()
        head = await reader.readuntil(b"\r\n\r\n")
        stream.write(b"first")
        first = await reader.readexactly(10)  # before the second one is written
        assert stream.write(b"") is True
        assert stream.write(memoryview(b"x" * 300)) is True
        stream.end()
        rest = await reader.readuntil(b"0\r\n\r\n")

        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        assert b"Transfer-Encoding: chunked\r\n" in head
        assert b"Content-Length" not in head
        assert first == b"5\r\nfirst\r\n"
        assert rest == b"12c\r\n" + b"x" * 300 + b"\r\n0\r\n\r\n"
    writer.close()


async def test_pipelined_requests_wait_for_the_end_of_the_stream(streamer: Streamer, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST % 1 + REQUEST % 1)
    first = await streamer.streams.get()
    await reader.readuntil(b"\r\n\r\n")
    first.write(b"1")
    assert streamer.streams.empty()
    first.end()
    second = await streamer.streams.get()
    first.write(b"too late")
    first.end()
    second.write(b"2")
    second.end()
    rest = await reader.readuntil(b"2\r\n0\r\n\r\n")

    assert rest.startswith(b"1\r\n1\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b"too late" not in rest
    writer.close()


async def test_older_clients_read_a_plain_body_to_the_end_of_the_connection(
    streamer: Streamer, port: int
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST % 0)
    stream = await streamer.streams.get()
    stream.write(b"data: 1\n\n")
    stream.write(b"data: 2\n\n")
    stream.end()
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")

    assert b"Transfer-Encoding" not in head
    assert b"Connection: close" in head
    assert body == b"data: 1\n\ndata: 2\n\n"
    writer.close()


async def test_a_slow_client_pauses_the_stream_until_it_has_caught_up(streamer: Streamer, port: int) -> None:
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, REQUEST % 1)
    stream = await streamer.streams.get()
    caught_up = asyncio.Event()
    stream.on_caught_up = caught_up.set
    written = 0
    while stream.write(bytes(65536)):
        written += 65536
    assert written < 64 * 1024 * 1024  # what the kernel keeps, not more
    assert stream.is_paused
    assert not caught_up.is_set()

    async with asyncio.timeout(20):
        while not caught_up.is_set():
            await loop.sock_recv(client, 65536)

    assert not stream.is_paused
    client.close()


async def test_a_client_that_leaves_ends_the_stream_and_is_told_once(streamer: Streamer, port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST % 1)
    stream = await streamer.streams.get()
    assert stream.is_open
    writer.close()
    await asyncio.wait_for(streamer.lost.wait(), 20)

    assert not stream.is_open
    assert stream.write(b"for nobody") is True
    stream.end()


async def test_an_aborted_stream_is_seen_to_be_incomplete(streamer: Streamer, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST % 1)
    stream = await streamer.streams.get()
    stream.write(b"half")
    await reader.readuntil(b"half\r\n")
    stream.abort()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await reader.readuntil(b"0\r\n\r\n")

    writer.close()
