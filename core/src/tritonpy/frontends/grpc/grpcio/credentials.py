"""TLS on the gRPC port, as grpcio wants it."""

from __future__ import annotations

import grpc

from tritonpy.frontends.grpc.certificates import read_certificates
from tritonpy.options import ServerOptions


def server_credentials(options: ServerOptions) -> grpc.ServerCredentials | None:
    """Credentials that the port is opened with; None to speak without TLS.

    Raises:
        InvalidArg: a file is missing or not what it should be; the text names its flag.
    """
    found = read_certificates(options)
    if found is None:
        return None
    pair = [(found.key, found.certificate)]
    return grpc.ssl_server_credentials(pair, found.root, require_client_auth=found.root is not None)
