"""Settings of the frontend, as `--frontend-config replica,KEY=VALUE` gives them."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.options import ServerOptions
from tritonpy.plugin import Address, Frontend, InvalidArg, parse_whole

from tritonpy_router.secrets import read_token

PORT = 8004
"""Where routers look for the service unless they are told of another port."""

_ADDRESS, _PORT, _TOKEN = "address", "port", "token-file"
_CERTIFICATE, _KEY, _CLIENTS = "tls-certificate", "tls-key", "tls-client-ca"
_KNOWN = (_ADDRESS, _PORT, _TOKEN, _CERTIFICATE, _KEY, _CLIENTS)
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the frontend.

    Attributes:
        address: that it listens on.
        token: that whoever asks must send; "" where a certificate says who they are.
        ports: the same and the files of TLS, as options of a gRPC port.
    """

    address: Address
    token: str
    ports: ServerOptions


def read_settings(frontend: Frontend) -> Settings:
    """Read the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have, or is missing.
    """
    given = frontend.settings
    flag = f"--frontend-config {frontend.name}"
    if unknown := sorted(given.keys() - set(_KNOWN)):
        raise InvalidArg(f"{flag},{unknown[0]}: not known, expected {', '.join(_KNOWN)}")
    port = parse_whole(given[_PORT], f"{flag},{_PORT}", 0) if _PORT in given else PORT
    if port > _MOST_PORT:
        raise InvalidArg(f"{flag},{_PORT}: got '{port}', expected {_MOST_PORT} at most")
    certificate, key, clients = (given.get(name, "") for name in (_CERTIFICATE, _KEY, _CLIENTS))
    if bool(certificate) != bool(key) or (clients and not certificate):
        missing = _CERTIFICATE if not certificate else _KEY
        raise InvalidArg(f"{flag},{missing}: missing: TLS needs a certificate and its private key")
    if _TOKEN not in given and not clients:
        raise InvalidArg(
            f"{flag},{_TOKEN}: missing: whoever asks can have the server load any model, so they must send a "
            f"token, from a file, or have a certificate that {flag},{_CLIENTS} has signed"
        )
    token = read_token(given[_TOKEN], f"{flag},{_TOKEN}") if _TOKEN in given else ""
    address = Address(given.get(_ADDRESS, "127.0.0.1"), port)
    return Settings(
        address,
        token,
        ServerOptions(
            (),
            grpc_address=address.host,
            grpc_port=port,
            grpc_use_ssl=bool(certificate),
            grpc_use_ssl_mutual=bool(clients),
            grpc_server_cert=certificate,
            grpc_server_key=key,
            grpc_root_cert=clients,
        ),
    )
