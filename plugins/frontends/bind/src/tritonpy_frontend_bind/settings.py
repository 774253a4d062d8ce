"""Settings of the frontend, as `--frontend-config bind,KEY=VALUE` gives them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonpy.plugin import Address, Frontend, InvalidArg, parse_whole
from tritonpy_sdk.remote.wire import MOST_DATA_BYTES

_ADDRESS, _PORT, _UNIX, _TOKEN = "address", "port", "unix", "token-file"
_CERTIFICATE, _KEY = "tls-certificate", "tls-key"
_FRAME, _SILENCE, _PROGRAMS, _INSTANCES = "max-frame-bytes", "silence-ms", "max-programs", "max-instances"
_KNOWN = (_ADDRESS, _PORT, _UNIX, _TOKEN, _CERTIFICATE, _KEY, _FRAME, _SILENCE, _PROGRAMS, _INSTANCES)
_MOST_PORT = 65535
_LEAST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the frontend.

    Attributes:
        addresses: that it listens on, a port or a path.
        token: that programs must know; "" only on a path, where the file's permissions decide.
        tls: encrypts; None for a plain connection.
        max_frame_bytes: the most bytes of tensors that one batch may have in either direction.
        silence_s: after which a program that sends nothing is given up.
        max_programs: that may be connected at once.
        max_instances: of one function.
    """

    addresses: Sequence[Address]
    token: str = ""
    tls: ssl.SSLContext | None = None
    max_frame_bytes: int = MOST_DATA_BYTES
    silence_s: float = 30.0
    max_programs: int = 100
    max_instances: int = 64

    @property
    def path(self) -> str:
        """The path that it listens on; "" for a port."""
        host = self.addresses[0].host
        return host.removeprefix("unix:") if host.startswith("unix:") else ""


def read_settings(frontend: Frontend) -> Settings:
    """Read the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have, or is missing.
    """
    given = frontend.settings
    flag = f"--frontend-config {frontend.name}"
    if unknown := sorted(given.keys() - set(_KNOWN)):
        raise InvalidArg(f"{flag},{unknown[0]}: not known, expected {', '.join(_KNOWN)}")

    def whole(key: str, default: int, least: int) -> int:
        return parse_whole(given[key], f"{flag},{key}", least) if key in given else default

    address = _address(given, whole(_PORT, 8003, 0), flag)
    is_path = address.host.startswith("unix:")
    if _TOKEN not in given and not is_path:
        raise InvalidArg(
            f"{flag},{_TOKEN}: missing: whoever binds a function sees the requests that it answers, so "
            f"programs must prove that they know a token; name a file that has one, of {_LEAST_TOKEN} "
            f"characters or more, or listen on a path of this machine with {flag},{_UNIX}=PATH"
        )
    return Settings(
        (address,),
        _token(given[_TOKEN], f"{flag},{_TOKEN}") if _TOKEN in given else "",
        _tls(given.get(_CERTIFICATE, ""), given.get(_KEY, ""), flag),
        whole(_FRAME, MOST_DATA_BYTES, 1),
        whole(_SILENCE, 30_000, 100) / 1000,
        whole(_PROGRAMS, 100, 1),
        whole(_INSTANCES, 64, 1),
    )


def _address(given: Mapping[str, str], port: int, flag: str) -> Address:
    path = given.get(_UNIX)
    if path is not None:
        if others := [key for key in (_ADDRESS, _PORT, _CERTIFICATE, _KEY) if given.get(key) is not None]:
            raise InvalidArg(f"{flag},{_UNIX}: '{path}' cannot stand beside {', '.join(others)}")
        if not path:
            raise InvalidArg(f"{flag},{_UNIX}: got '', expected a path")
        return Address(f"unix:{path}", 0)
    if port > _MOST_PORT:
        raise InvalidArg(f"{flag},{_PORT}: got '{port}', expected {_MOST_PORT} at most")
    return Address(given.get(_ADDRESS, "127.0.0.1"), port)


def _token(path: str, flag: str) -> str:
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArg(f"{flag}: cannot read '{path}': {exc}") from None
    if len(token) < _LEAST_TOKEN:
        raise InvalidArg(
            f"{flag}: the token in '{path}' has {len(token)} characters, expected {_LEAST_TOKEN} or more; "
            f'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
        )
    return token


def _tls(certificate: str, key: str, flag: str) -> ssl.SSLContext | None:
    if not certificate and not key:
        return None
    if not certificate or not key:
        missing = _KEY if certificate else _CERTIFICATE
        raise InvalidArg(f"{flag},{missing}: missing: TLS needs a certificate and its private key")

    def refuse() -> str:
        raise InvalidArg(f"{flag},{_KEY}: '{key}' needs a passphrase, which nobody could give")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, refuse)
    except (OSError, ssl.SSLError) as exc:
        raise InvalidArg(
            f"{flag},{_CERTIFICATE}: '{certificate}' and '{key}' are no certificate and its private key in "
            f"PEM files that can be read: {exc}"
        ) from None
    return context
