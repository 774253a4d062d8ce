"""Messages between the server and the process of an agent: JSON behind its length, on a pair of sockets."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings numpy, for which every first load would wait
    from tritonpy.plugin import JsonObject

_LENGTH = struct.Struct("=I")

_MOST_BYTES = 64 << 20


class BadMessage(ValueError):
    """The bytes are no message: an agent has written into the descriptors of its process."""


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
        """Wait for the next one; None when the other end is gone.

        Raises:
            BadMessage: it is none.
        """
        try:
            head = self._received.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (size,) = _LENGTH.unpack(head)
            if size > _MOST_BYTES:
                raise BadMessage(f"a message of {size} bytes")
            body = self._received.read(size)
        except OSError:
            return None
        if len(body) < size:
            return None
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise BadMessage(str(exc)) from exc
        if not isinstance(message, dict):
            raise BadMessage(f"a message that is a {type(message).__name__}")
        return message

    def end(self) -> None:
        """Let both ends know that there are no more messages; what has been sent can still be received."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end is gone
            return

    def close(self) -> None:
        """Close this end, when nothing is received any more."""
        self._received.close()
        self._socket.close()
