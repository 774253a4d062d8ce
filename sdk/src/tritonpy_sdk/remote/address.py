"""Addresses of servers that take functions of other programs."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from tritonpy.errors import InvalidArg

DEFAULT_PORT = 8003
"""The port of the frontend `bind`."""


@dataclass(frozen=True, slots=True)
class BindAddress:
    """A place to connect to.

    Attributes:
        text: as it was given.
        host, port: of a port; "" and 0 for a path.
        path: of a socket of this machine; "" for a port.
        is_tls: the connection is encrypted.
    """

    text: str
    host: str = ""
    port: int = 0
    path: str = ""
    is_tls: bool = False


def read_address(text: str) -> BindAddress:
    """Read `HOST:PORT`, `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`.

    Raises:
        InvalidArg: it is none of these, or this system has no such sockets.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not hasattr(socket, "AF_UNIX"):  # Windows
            raise InvalidArg(f"address: got '{text}', expected HOST:PORT: this system has no such sockets")
        if path:
            return BindAddress(text, path=path)
    else:
        try:
            parts = urlsplit(text if "://" in text else f"tcp://{text}")
            port = parts.port
            (parts.hostname or "").encode("idna")  # as the system's resolver is asked
        except ValueError:
            pass
        else:
            is_bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
            if parts.scheme in ("tcp", "tls") and parts.hostname and is_bare:
                chosen = DEFAULT_PORT if port is None else port
                return BindAddress(text, parts.hostname, chosen, is_tls=parts.scheme == "tls")
    raise InvalidArg(
        f"address: got '{text}', expected HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT or unix:PATH"
    )
