"""Settings of the frontend, as `--frontend-config tfserving,KEY=VALUE` gives them."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.plugin import Frontend, InvalidArg, parse_whole

_PORT, _GRPC_PORT, _ADDRESS, _BODY = "port", "grpc-port", "address", "max-body-bytes"
_KNOWN = (_PORT, _GRPC_PORT, _ADDRESS, _BODY)
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the frontend.

    Attributes:
        port: for REST; 0 lets the system choose. TensorFlow Serving's usual one is the default.
        grpc_port: for gRPC; None leaves it out.
        address: that both listen on.
        max_body_bytes: a larger body or message is refused, after compression is undone.
    """

    port: int = 8501
    grpc_port: int | None = None
    address: str = "0.0.0.0"
    max_body_bytes: int = 64 << 20


_DEFAULT = Settings()


def read_settings(frontend: Frontend) -> Settings:
    """Read the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have.
    """
    given = frontend.settings
    unknown = sorted(given.keys() - set(_KNOWN))
    if unknown:
        raise InvalidArg(
            f"--frontend-config {frontend.name},{unknown[0]}: not known, expected {', '.join(_KNOWN)}"
        )

    def whole(key: str, default: int, least: int) -> int:
        where = f"--frontend-config {frontend.name},{key}"
        return parse_whole(given[key], where, least) if key in given else default

    ports = {key: whole(key, _DEFAULT.port, 0) for key in (_PORT, _GRPC_PORT)}
    for key, port in ports.items():
        if port > _MOST_PORT:
            raise InvalidArg(
                f"--frontend-config {frontend.name},{key}: got '{port}', expected {_MOST_PORT} at most"
            )
    return Settings(
        ports[_PORT],
        ports[_GRPC_PORT] if _GRPC_PORT in given else None,
        given.get(_ADDRESS, _DEFAULT.address),
        whole(_BODY, _DEFAULT.max_body_bytes, 1),
    )
