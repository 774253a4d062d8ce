"""Messages between the server and the process of an agent: JSON behind its length, on a pair of sockets."""

from __future__ import annotations

import json
import socket
import struct
import threading

from tritonpy.plugin import JsonObject

_LENGTH = struct.Struct("=I")


class Messages:
    """One end. Any thread may send; one thread receives.

    Args:
        connected: a stream socket; this is its owner.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._received = connected.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: JsonObject) -> None:
        """Send one, whole.

        Raises:
            OSError: the other end is gone.
        """
        body = json.dumps(message).encode()
        with self._sending:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> JsonObject | None:
        """Wait for the next one; None when the other end is gone, or what it says is no message."""
        try:
            head = self._received.read(_LENGTH.size)
            body = self._received.read(*_LENGTH.unpack(head)) if len(head) == _LENGTH.size else b""
            message: JsonObject | None = json.loads(body) if body else None
        except (OSError, ValueError):
            return None
        return message

    def end(self) -> None:
        """Let both ends know that there are no more messages; what has been sent can still be received."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end is gone
            return

    def close(self) -> None:
        """Close this end, when nobody receives any more."""
        self._received.close()
        self._socket.close()
