"""TLS on the gRPC port, as asyncio wants it; certificates that are replaced are shown to the next client."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl

from tritonpy.errors import TritonError
from tritonpy.frontends.grpc.certificates import read_certificates
from tritonpy.options import ServerOptions

HANDSHAKE_S = 10.0
"""How long a client may take to begin with TLS."""
GOODBYE_S = 2.0
"""How long it may take to answer the end of TLS, which few do."""

_log = logging.getLogger("tritonpy.grpc")

_PROTOCOL = "h2"
# Forward secrecy and authenticated encryption only (RFC 9113, section 9.2.2); TLS 1.3 has nothing else.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    """The TLS context of the port; None to speak without TLS.

    Each new connection is given what the files hold then. One that is open keeps what it began with.

    Raises:
        InvalidArg: a file is missing or not what it should be; the text names its flag.
    """
    renewal = _Renewal(options)
    if renewal.context is not None:
        renewal.context.sni_callback = renewal.on_hello
    return renewal.context


class _Renewal:
    """Reads the files anew when they have changed; those that are of no use change nothing.

    Args:
        options: name the files.

    Attributes:
        context: made of the files when they were last in order; None to speak without TLS.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._seen = self._look()
        self.context = _made_context(options)

    def on_hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """A client begins with TLS, whether or not it names the server."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            self._renew()
        if self.context is not None:
            connection.context = self.context

    def _renew(self) -> None:
        try:
            self.context = _made_context(self._options)
        except (TritonError, OSError, ValueError) as exc:  # ssl.SSLError is an OSError
            _log.warning("gRPC goes on with the certificates that it has: %s", exc)
        else:
            _log.info("gRPC shows its new certificates")

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        """A value that changes when a file is replaced or written."""
        options = self._options
        return tuple(
            _version(path)
            for path in (options.grpc_server_cert, options.grpc_server_key, options.grpc_root_cert)
        )


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _made_context(options: ServerOptions) -> ssl.SSLContext | None:
    found = read_certificates(options)
    if found is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols([_PROTOCOL])
    context.load_cert_chain(options.grpc_server_cert, options.grpc_server_key)
    if found.root is not None:
        context.load_verify_locations(cadata=found.root.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        # Who resumes a session is not asked again: then a root that was replaced would go on to count.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def speaks_http2(transport: asyncio.BaseTransport) -> bool:
    """True if the two sides have agreed on HTTP/2; without TLS there is nothing to agree on."""
    connection = transport.get_extra_info("ssl_object")
    return connection is None or connection.selected_alpn_protocol() == _PROTOCOL
