"""TLS on the gRPC port, as asyncio wants it."""

from __future__ import annotations

import asyncio
import ssl

from tritonpy.frontends.grpc.certificates import read_certificates
from tritonpy.options import ServerOptions

HANDSHAKE_S = 10.0
"""How long a client may take to begin with TLS."""
GOODBYE_S = 2.0
"""How long it may take to answer the end of TLS, which few do."""

_PROTOCOL = "h2"
# Forward secrecy and authenticated encryption only (RFC 9113, section 9.2.2); TLS 1.3 has nothing else.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    """The TLS context of the port; None to speak without TLS.

    Raises:
        InvalidArg: a file is missing or not what it should be; the text names its flag.
    """
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
    return context


def speaks_http2(transport: asyncio.BaseTransport) -> bool:
    """Whether the two sides have agreed on HTTP/2; without TLS there is nothing to agree on."""
    connection = transport.get_extra_info("ssl_object")
    return connection is None or connection.selected_alpn_protocol() == _PROTOCOL
