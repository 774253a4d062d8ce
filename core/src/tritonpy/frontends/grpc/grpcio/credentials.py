"""TLS on the gRPC port: what the server shows, and whom it asks for the same."""

from __future__ import annotations

import grpc

from tritonpy.frontends.certificates import check_certificates, check_key, read_pem
from tritonpy.options import ServerOptions


def server_credentials(options: ServerOptions) -> grpc.ServerCredentials | None:
    """What the port is opened with; None to speak without TLS.

    Asking for mutual TLS means TLS, whatever `grpc_use_ssl` says; only then is there a root certificate.

    Raises:
        InvalidArg: a file is missing or not what it should be; the text names its flag.
    """
    if not (options.grpc_use_ssl or options.grpc_use_ssl_mutual):
        return None
    path = options.grpc_server_cert
    certificate = read_pem("--grpc-server-cert", path, "the server's certificate")
    key = read_pem("--grpc-server-key", options.grpc_server_key, "the server's private key")
    check_certificates("--grpc-server-cert", path, certificate)
    check_key("--grpc-server-key", options.grpc_server_key, path)
    if not options.grpc_use_ssl_mutual:
        return grpc.ssl_server_credentials([(key, certificate)])
    root = read_pem(
        "--grpc-root-cert", options.grpc_root_cert, "the certificate that has signed those of clients"
    )
    check_certificates("--grpc-root-cert", options.grpc_root_cert, root)
    return grpc.ssl_server_credentials([(key, certificate)], root, require_client_auth=True)
