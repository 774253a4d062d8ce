"""A client of one HTTP connection, without sockets: bytes go in by hand, time is virtual."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tritonpy.admission import Admission
from tritonpy.frontends.http.connection.answering import Handler, HttpConnection
from tritonpy.frontends.http.connection.message import TEXT, HttpRequest, refusal, response_head
from tritonpy.frontends.http.connection.protocol import HttpProtocol, Port
from tritonpy.frontends.http.connection.stream import ResponseStream

_SCRATCH_BYTE_SIZE = 64 * 1024
_CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


@dataclass
class Answer:
    """What a client has received for one request; `body` is None while it is not complete."""

    status: int
    headers: dict[str, str]
    body: bytes | None


def answers_in(received: bytes) -> list[Answer]:
    """The answers in what a client has received."""
    answers = []
    at = 0
    while at < len(received):
        end = received.index(b"\r\n\r\n", at) + 4
        lines = received[at : end - 4].decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        answer = Answer(int(lines[0].split()[1]), headers, b"")
        answers.append(answer)
        if headers.get("transfer-encoding") == "chunked":
            answer.body, at = _chunks_in(received, end)
        elif answer.status == 100:
            at = end
        else:  # without a length the end of the connection is that of the body
            at = end + int(headers.get("content-length", len(received) - end))
            answer.body = received[end:at]
    return answers


def _chunks_in(received: bytes, at: int) -> tuple[bytes | None, int]:
    body = b""
    while (size := _CHUNK.match(received, at)) is not None:
        start, length = size.end(), int(size[1], 16)
        body += received[start : start + length]
        at = start + length + 2
        if not length:
            return body, at
    return None, len(received)


class Transport:
    """The server's end of a connection; what is written arrives at once, or when its client reads on.

    Args:
        connection: told what happens to it.
        can_end: whether one side alone can be ended, which TLS cannot.
        end: a connected socket, for what asks the system; None for what does not.
    """

    def __init__(self, connection: HttpProtocol, can_end: bool, end: object) -> None:
        self._connection = connection
        self._can_end = can_end
        self._end = end
        self._unsent = bytearray()
        self._is_closing = False
        self._is_full = False
        self.on_resume: Callable[[], None] = lambda: None
        self.received = bytearray()
        self.is_reading = True
        self.is_taken = True
        self.has_ended = False
        self.was_aborted = False
        self.is_lost = False

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_extra_info(self, name: str) -> object:
        return {"peername": ("10.0.0.7", 51224), "socket": self._end}.get(name)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing, f"{bytes(data)!r} is written after the connection was closed"
        assert not self.has_ended, f"{bytes(data)!r} is written after its end"
        if self.is_taken:
            self.received += data
            return
        self._unsent += data
        if not self._is_full and len(self._unsent) > self._high:
            self._is_full = True
            self._connection.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def can_write_eof(self) -> bool:
        return self._can_end

    def write_eof(self) -> None:
        self.has_ended = True

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True
        asyncio.get_running_loop().call_soon(self.on_resume)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self._is_closing = self.was_aborted = True
        self._unsent.clear()
        asyncio.get_running_loop().call_soon(self.lose)

    def take(self) -> None:
        """The client reads on."""
        self.is_taken = True
        self.received += self._unsent
        self._unsent.clear()
        if self._is_full:
            self._is_full = False
            self._connection.resume_writing()
        if self._is_closing:
            asyncio.get_running_loop().call_soon(self.lose)

    def lose(self) -> None:
        """The connection is over."""
        self._is_closing = True
        if not self.is_lost:
            self.is_lost = True
            self._connection.connection_lost(None)


class Service:
    """Answers requests with what they are, at once or when the test says so; satisfies `Handler`.

    Args:
        is_quick: they are answered at once.

    Attributes:
        requests: those that have come, with `answers` that were given and `losses` of clients.
    """

    def __init__(self, is_quick: bool = True) -> None:
        self.is_quick = is_quick
        self.requests: list[HttpRequest] = []
        self.connection: HttpConnection | None = None
        self.answers = 0
        self.losses = 0

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        self.requests.append(request)
        self.connection = connection
        if self.is_quick:
            self.answer()
        else:
            connection.watch(self._lose)

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        return refusal(404, "Not Found", keep_alive) if request.path == "/none" else None

    @property
    def is_busy(self) -> bool:
        """A request waits for its answer."""
        return self.answers < len(self.requests)

    def answer(self, more: bytes = b"") -> None:
        """Answer the last request with its path, its body and what is given."""
        request, connection = self.requests[-1], self.connection
        assert connection is not None
        self.answers += 1
        body = request.path.encode() + b" " + bytes(request.body) + more
        connection.write(response_head(200, TEXT, len(body), connection.keep_alive) + body)

    def stream(self) -> ResponseStream:
        """Begin to answer the last request piece by piece."""
        assert self.connection is not None
        self.answers += 1
        return self.connection.start_stream(200, TEXT)

    def _lose(self) -> None:
        self.losses += 1


class Client:
    """Sends bytes to a connection of its own, and keeps what comes back.

    Args:
        service: answers.
        admission: shared with others; None for one without a limit.
        end: the server's end of a pair of sockets, for what asks the system.
        **settings: of the port.
    """

    def __init__(
        self,
        service: Handler,
        admission: Admission | None = None,
        end: object = None,
        json_limit: int = 1 << 20,
        **settings: Any,
    ) -> None:
        self.opened: list[HttpProtocol] = []
        self.admission = admission or Admission(0)
        scratch = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        self.port = Port(
            service,
            self.admission,
            json_limit,
            scratch,
            self.opened.append,
            self.opened.remove,
            **settings,
        )
        self.connection = HttpProtocol(self.port)
        self.transport = Transport(self.connection, not self.port.is_tls, end)
        self.transport.on_resume = self._deliver
        self._unread = b""
        self._has_ended = False
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def send(self, data: bytes, piece: int = _SCRATCH_BYTE_SIZE) -> None:
        """Send bytes, in pieces of a size; they arrive now if the connection is read."""
        for start in range(0, len(data), piece):
            self._unread += data[start : start + piece]
            self._deliver()

    def end(self) -> None:
        """Send nothing more."""
        self._has_ended = True
        self._deliver()

    def vanish(self) -> None:
        """Be gone."""
        self.transport.lose()

    @property
    def answers(self) -> list[Answer]:
        return answers_in(bytes(self.transport.received))

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closing()

    @property
    def unread_byte_size(self) -> int:
        """What the connection has not read."""
        return len(self._unread)

    def _deliver(self) -> None:
        connection, transport = self.connection, self.transport
        while self._unread and transport.is_reading and not transport.is_closing():
            buffer = connection.get_buffer(-1)
            size = min(len(buffer), len(self._unread))
            buffer[:size], self._unread = self._unread[:size], self._unread[size:]
            connection.buffer_updated(size)
        if self._has_ended and not self._unread and transport.is_reading and not transport.is_closing():
            self._has_ended = False
            if not connection.eof_received():
                transport.close()
