"""A connection without a socket, and a codec without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tritonpy.frontends.http.codec import large_json
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.tensor import Tensor


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.written += b"".join(parts)


class Connection(HttpConnection):
    """Has one request, and keeps its answer; the client leaves when the test says so."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__()
        self.kept = Transport()
        self.answer_count = 0
        self._transport = self.kept  # type: ignore[assignment]  # as much of one as is asked for
        self._current = request

    def leave(self) -> None:
        self._transport = self._current = None
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def _finish(self, current: HttpRequest) -> None:
        self._current = self._on_lost = None
        self.answer_count += 1

    @property
    def status(self) -> int:
        return int(self.kept.written.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[bytes, bytes]:
        lines = self.kept.written.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        return {name: value for name, _, value in (line.partition(b": ") for line in lines)}

    @property
    def body(self) -> bytes:
        body = self.kept.written.partition(b"\r\n\r\n")[2]
        assert len(body) == int(self.headers[b"Content-Length"])
        return body


class Codec:
    """Works as soon as the test lets it; does here what a `JsonCodec` has done elsewhere."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.read_count = 0

    async def read(self, text: bytes | memoryview) -> Any:
        self.read_count += 1
        await self.go.wait()
        return large_json.put_together(large_json.take_apart(text))

    async def write(self, tensors: Sequence[Tensor]) -> list[bytes]:
        await self.go.wait()
        return large_json.write_data(tensors)
