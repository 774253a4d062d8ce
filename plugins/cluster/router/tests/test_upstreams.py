"""Connections to replicas, driven by hand: what one request leaves behind is not the next one's."""

from __future__ import annotations

import asyncio
from typing import Any

from tritonpy_router.grpc_client.connection import GrpcUpstream
from tritonpy_router.grpc_client.header_blocks import BlockReader, encoded
from tritonpy_router.http_client import HttpUpstream


class HandTransport(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_reading = True

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written.extend(map(bytes, list_of_data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        pass


class Slow:
    """The answer to a client that does not keep up."""

    def __init__(self, upstream: HttpUpstream) -> None:
        self.upstream = upstream
        self.is_over = False

    def on_head(self, status: int, headers: Any, length: int | None) -> None:
        pass

    def on_body(self, data: Any) -> None:
        self.upstream.pause()

    def on_end(self) -> None:
        self.is_over = True

    def on_lost(self, error: str) -> None:
        raise AssertionError(error)


def test_a_connection_whose_client_was_slow_is_read_for_the_next_one() -> None:
    free: list[HttpUpstream] = []
    upstream = HttpUpstream(memoryview(bytearray(65536)), free.append, lambda _: None)
    transport, exchange = HandTransport(), Slow(upstream)
    upstream.connection_made(transport)
    upstream.send(b"GET / HTTP/1.1\r\n\r\n", b"", exchange)
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    upstream.get_buffer(-1)[: len(answer)] = answer

    upstream.buffer_updated(len(answer))

    assert (exchange.is_over, free, transport.is_reading) == (True, [upstream], True)


class Nobody:
    """A call that nobody waits for."""

    def replica_headers(self, headers: Any, is_last: bool) -> None: ...

    def replica_data(self, data: bytes) -> None: ...

    def replica_trailers(self, headers: Any) -> None: ...

    def replica_over(self, code: int | None) -> None: ...

    def replica_flushed(self) -> None: ...


def test_many_calls_that_are_cancelled_at_once_are_reset_bit_by_bit() -> None:
    async def run() -> tuple[int, int]:
        scratch, lead = memoryview(bytearray(4096)), encoded(((b":method", b"POST"),))
        upstream = GrpcUpstream(scratch, lead, BlockReader(), lambda _: None, lambda _: None, lambda: None)
        upstream.connection_made(HandTransport())
        streams = [upstream.begin(encoded(((b":path", b"/a/b"),)), Nobody()) for _ in range(300)]
        for stream in streams:
            upstream.cancel(stream)
        at_once = len(upstream._engine.cancelled)
        upstream._resets_at -= 1  # a second later
        upstream._reset_some()
        return at_once, len(upstream._engine.cancelled)

    at_once, later = asyncio.run(run())

    assert 195 <= at_once <= 200
    assert 170 <= later <= at_once - 25
