"""HTTPS: what the server shows of itself, from two PEM files."""

from __future__ import annotations

import ssl

from tritonpy.frontends.certificates import check_certificates, check_key, read_pem

_CERTIFICATE, _KEY = "--https-certificate", "--https-key"


def server_context(certificate_path: str, key_path: str) -> ssl.SSLContext | None:
    """What TLS needs; None when neither file is named, which means plain HTTP.

    Args:
        certificate_path: the server's certificate, followed by those that lead to one that clients trust.
        key_path: its private key, without a passphrase.

    Raises:
        InvalidArg: one is missing, is no PEM file, or they do not belong together.
    """
    if not certificate_path and not key_path:
        return None
    certificate = read_pem(_CERTIFICATE, certificate_path, "the server's certificate")
    check_certificates(_CERTIFICATE, certificate_path, certificate)
    read_pem(_KEY, key_path, "the server's private key")
    check_key(_KEY, key_path, certificate_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_path, key_path)
    context.set_alpn_protocols(["http/1.1"])
    return context
