"""A tiny server of Redis' protocol, on threads: what a test needs, and what no Redis does on request."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from typing import Any


def hold_port(port: int) -> socket.socket:
    """Have connections to a port refused until this is closed; who listens with SO_REUSEADDR may take it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return held


class RespServer:
    """Keeps strings in a dict.

    Attributes:
        port: on 127.0.0.1.
        entries: by key.
        calls: names of the commands that were answered, but for those of the handshake.
        gate: while it is not set, commands wait for it.
        refusal: what SET is answered with, if anything.
        password: what AUTH must say; "" for nothing.
    """

    def __init__(self, port: int = 0) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.calls: list[str] = []
        self.arguments: list[list[bytes]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.refusal = ""
        self.password = ""
        self._sockets: list[Any] = []
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                server._sockets.append(self.connection)
                with contextlib.suppress(OSError, ValueError):  # the client has gone, or the test is over
                    while line := self.rfile.readline():
                        parts = []
                        for _ in range(int(line[1:])):
                            size = int(self.rfile.readline()[1:])
                            parts.append(self.rfile.read(size + 2)[:-2])
                        self.wfile.write(server._answer(parts))

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._held = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(2)
        self._sockets.clear()

    def die(self) -> None:
        """Take no more connections, and close those there are; nobody else gets the port."""
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._held.enter_context(hold_port(self.port))
        self._thread.join()
        self.hang_up()

    def revive(self) -> None:
        """Begin again on the same port, with nothing kept."""
        with self._held:
            self.__init__(self.port)  # type: ignore[misc]  # as a process that is started again

    def stop(self) -> None:
        """End it."""
        self.die()
        self._held.close()

    def _answer(self, parts: list[bytes]) -> bytes:
        name = parts[0].decode().upper()
        if name == "HELLO":
            if self.password and self.password.encode() not in parts:
                return b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
            return b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
        if name in ("CLIENT", "SELECT"):
            return b"+OK\r\n"
        self.gate.wait(30)
        self.calls.append(name)
        self.arguments.append(parts[1:])
        match name:
            case "PING":
                return b"+PONG\r\n"
            case "GET":
                entry = self.entries.get(parts[1])
                return b"_\r\n" if entry is None else b"$%d\r\n%b\r\n" % (len(entry), entry)
            case "SET" if self.refusal:
                return f"-{self.refusal}\r\n".encode()
            case "SET":
                self.entries[parts[1]] = parts[2]
                return b"+OK\r\n"
        return b"-ERR unknown command\r\n"
