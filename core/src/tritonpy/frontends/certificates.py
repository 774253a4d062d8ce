"""Certificates and keys from PEM files, checked before a port is opened with them.

The libraries that speak TLS say little about a file they cannot use, and not which one it was.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from tritonpy.errors import InvalidArg

_BEGINS_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


def read_pem(flag: str, path: str, use: str) -> bytes:
    """The contents of a file that a flag names.

    Args:
        flag: such as `--grpc-server-key`.
        path: its value.
        use: what the file is for, such as "the server's private key".

    Raises:
        InvalidArg: it is not named, or cannot be read.
    """
    if not path:
        raise InvalidArg(f"{flag} is missing: {use} is needed, as a PEM file")
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise InvalidArg(f"{flag}: cannot read {use} from '{path}': {exc.strerror}") from None


def check_certificates(flag: str, path: str, pem: bytes) -> None:
    """See that a file holds certificates.

    Raises:
        InvalidArg: it does not.
    """
    try:
        if _BEGINS_CERTIFICATE not in pem:
            raise ValueError
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode())
    except (ValueError, ssl.SSLError):
        raise InvalidArg(f"{flag}: '{path}' holds no PEM certificate that can be read") from None


def check_key(flag: str, path: str, certificate_path: str) -> None:
    """See that a file holds the private key of a certificate, without a passphrase.

    Args:
        flag: that names the key.
        path: of the key.
        certificate_path: of the certificate, which is in order.

    Raises:
        InvalidArg: it does not.
    """

    def refuse() -> str:
        raise InvalidArg(f"{flag}: the private key in '{path}' needs a passphrase, which nobody could give")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate_path, path, refuse)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise InvalidArg(
                f"{flag}: '{path}' is not the key of the certificate in '{certificate_path}'"
            ) from None
        raise InvalidArg(f"{flag}: '{path}' holds no PEM private key that can be read") from None


def server_context(certificate_path: str, key_path: str, client_ca_path: str = "") -> ssl.SSLContext | None:
    """The TLS context of the HTTP port; None when no file is named, which means plain HTTP.

    Args:
        certificate_path: the server's certificate, followed by those that lead to one that clients trust.
        key_path: its private key, without a passphrase.
        client_ca_path: what certificates of clients are checked by, which all must have then; "" for none.

    Raises:
        InvalidArg: one is missing, is no PEM file, or they do not belong together.
    """
    if not certificate_path and not key_path and not client_ca_path:
        return None
    certificate = read_pem("--https-certificate", certificate_path, "the server's certificate")
    check_certificates("--https-certificate", certificate_path, certificate)
    read_pem("--https-key", key_path, "the server's private key")
    check_key("--https-key", key_path, certificate_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_path, key_path)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca_path:
        clients = read_pem("--https-client-ca", client_ca_path, "what certificates of clients are checked by")
        check_certificates("--https-client-ca", client_ca_path, clients)
        context.load_verify_locations(client_ca_path)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
