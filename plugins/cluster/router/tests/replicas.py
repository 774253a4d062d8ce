"""Replicas that do not behave."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tritonpy_router.replica import Place


class Fake:
    """A replica that is healthy and has the model `echo`, and does not answer inference; on a thread.

    Args:
        parameters: of the model's configuration.
        before_head: what it sends of an answer before it closes the connection.

    Attributes:
        asked: inference requests that it got.
        headers: of the last of them, in small letters.
    """

    def __init__(self, parameters: dict[str, Any], before_head: bytes = b"") -> None:
        self.parameters = parameters
        self.before_head = before_head
        self.asked = 0
        self.headers: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.place = Place(
            "fake", "127.0.0.1", self._listening.getsockname()[1], self._listening.getsockname()[1]
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                length, headers = 0, []
                while (header := stream.readline().lower()) not in (b"\r\n", b""):
                    headers.append(header.rstrip())
                    if header.startswith(b"content-length:"):
                        length = int(header.partition(b":")[2])
                stream.read(length)
                path = line.split(b" ")[1]
                if path.endswith((b"/infer", b"/generate_stream")):
                    self.headers = headers
                    self.asked += 1
                    connection.sendall(self.before_head)
                    return
                document: Any = {}
                if path.endswith(b"/index"):
                    document = [{"name": "echo", "version": "1", "state": "READY"}]
                elif path.endswith(b"/config"):
                    document = {"name": "echo", "parameters": self.parameters}
                body = json.dumps(document).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@contextmanager
def fake(parameters: dict[str, Any] | None = None, before_head: bytes = b"") -> Iterator[Fake]:
    made = Fake(parameters or {}, before_head)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def grpc_port_that_ends(marker: bytes) -> Iterator[int]:
    """A port of HTTP/2 whose connections end when a message with these bytes has come."""
    settings = b"\0\0\0\4\0\0\0\0\0"  # a frame without any

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(settings)
                received = b""
                while marker not in received and (data := connection.recv(65536)):
                    received += data

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
