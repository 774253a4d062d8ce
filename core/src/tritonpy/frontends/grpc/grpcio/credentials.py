"""TLS on the gRPC port: what the server shows, and whom it asks for the same."""

from __future__ import annotations

import grpc

from tritonpy.frontends.certificates import check_certificates, check_key, read_pem
from tritonpy.frontends.grpc.settings import GrpcSettings


def server_credentials(settings: GrpcSettings) -> grpc.ServerCredentials | None:
    """What the port is opened with; None to speak without TLS.

    Asking for mutual TLS means TLS, whatever `use_ssl` says. Without it nobody looks at the root certificate.

    Raises:
        InvalidArg: a file is missing or not what it should be; the text names its flag.
    """
    if not (settings.use_ssl or settings.use_ssl_mutual):
        return None
    path = settings.certificate_path
    certificate = read_pem("--grpc-server-cert", path, "the server's certificate")
    key = read_pem("--grpc-server-key", settings.key_path, "the server's private key")
    check_certificates("--grpc-server-cert", path, certificate)
    check_key("--grpc-server-key", settings.key_path, path)
    if not settings.use_ssl_mutual:
        return grpc.ssl_server_credentials([(key, certificate)])
    root = read_pem(
        "--grpc-root-cert", settings.root_path, "the certificate that has signed those of clients"
    )
    check_certificates("--grpc-root-cert", settings.root_path, root)
    return grpc.ssl_server_credentials([(key, certificate)], root, require_client_auth=True)
