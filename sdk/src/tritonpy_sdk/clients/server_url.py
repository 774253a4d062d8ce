"""Addresses of servers, as clients are given them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tritonpy_sdk.clients.errors import InvalidUrlError

_PORTS = {"http": 8000, "https": 8000, "grpc": 8001, "grpcs": 8001}


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """An address of a server.

    Attributes:
        protocol: `http` or `grpc`.
        address: host and port, as tritonclient wants them.
        is_encrypted: it is spoken over TLS.
    """

    protocol: str
    address: str
    is_encrypted: bool = False

    @classmethod
    def parse(cls, url: str) -> ServerUrl:
        """Read `host`, `host:port` or `SCHEME://host:port`; http by default, with its usual port.

        Raises:
            InvalidUrlError: it is none of these.
        """
        text = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise InvalidUrlError(f"url: got '{url}': {exc}") from exc
        if parts.scheme not in _PORTS or not host or parts.path.strip("/") or parts.query or parts.fragment:
            raise InvalidUrlError(
                f"url: got '{url}', expected HOST, HOST:PORT or SCHEME://HOST:PORT with one of "
                f"{', '.join(_PORTS)}"
            )
        if ":" in host:
            host = f"[{host}]"
        address = f"{host}:{_PORTS[parts.scheme] if port is None else port}"
        return cls(parts.scheme[:4], address, parts.scheme.endswith("s"))
