"""Files for encrypted connections: whom a client trusts, and who it is."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonpy_bench.errors import BenchError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM.

    Attributes:
        ca: certificates that the server's may be signed with; None for those that the system trusts.
        certificate: of the client, with those that lead to its authority behind it.
        key: of that certificate; None if it is in the same file.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __bool__(self) -> bool:
        return any((self.ca, self.certificate, self.key))

    def context(self, protocols: Sequence[str] = ()) -> ssl.SSLContext:
        """What encrypts a connection, with the protocols that are offered inside it.

        Raises:
            BenchError: a file is not there, or is none of these, or the key is encrypted.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise BenchError(f"--tls-ca '{self.ca}': {_why(error)}") from None
        if self.key is not None and self.certificate is None:
            raise BenchError(f"--tls-key '{self.key}' is of no certificate: give one with --tls-cert")
        if self.certificate is not None:
            key = f" with --tls-key '{self.key}'" if self.key is not None else ""
            try:
                context.load_cert_chain(self.certificate, self.key, self._passphrase)
            except (OSError, ssl.SSLError) as error:
                raise BenchError(f"--tls-cert '{self.certificate}'{key}: {_why(error)}") from None
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def _passphrase(self) -> str:
        """Refuse: OpenSSL would stop and ask the terminal for it."""
        name = (
            f"--tls-key '{self.key}'"
            if self.key is not None
            else f"the key in --tls-cert '{self.certificate}'"
        )
        raise BenchError(
            f"{name} is encrypted; give a key without a passphrase, as "
            "`openssl pkey -in KEY -out FILE` writes it"
        )

    def contents(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """What is in the files of the authority, the key and the certificate, as grpcio takes them.

        Raises:
            BenchError: as of `context`.
        """
        self.context()
        ca, certificate = (path.read_bytes() if path else None for path in (self.ca, self.certificate))
        key = self.key.read_bytes() if self.key else certificate
        return ca, key, certificate


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"it cannot be used ({error.reason or error})"
    return error.strerror or str(error)
