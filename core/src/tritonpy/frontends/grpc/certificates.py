"""The certificates of the gRPC port, read and checked."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.frontends.certificates import check_certificates, check_key, read_pem
from tritonpy.options import ServerOptions


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates that a port shows, and asks its clients for; PEM.

    Attributes:
        certificate: of the server.
        key: of that certificate.
        root: has signed the certificates that clients must have; None where they need none.
    """

    certificate: bytes
    key: bytes
    root: bytes | None


def read_certificates(options: ServerOptions) -> Certificates | None:
    """Read the files that the options name; None to speak without TLS.

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
        return Certificates(certificate, key, None)
    root = read_pem(
        "--grpc-root-cert", options.grpc_root_cert, "the certificate that has signed those of clients"
    )
    check_certificates("--grpc-root-cert", options.grpc_root_cert, root)
    return Certificates(certificate, key, root)
