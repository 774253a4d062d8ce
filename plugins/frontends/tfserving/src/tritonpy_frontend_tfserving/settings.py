"""Settings of the frontend, as `--frontend-config tfserving,KEY=VALUE` gives them."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.plugin import Frontend, InvalidArg, parse_whole

_PORT, _ADDRESS, _BODY = "port", "address", "max-body-bytes"
_KNOWN = (_PORT, _ADDRESS, _BODY)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the frontend.

    Attributes:
        port: that it listens on; 0 lets the system choose. TensorFlow Serving's usual one is the default.
        address: that it listens on.
        max_body_bytes: a larger body is refused, after compression is undone.
    """

    port: int = 8501
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

    port = whole(_PORT, _DEFAULT.port, 0)
    if port > 65535:
        raise InvalidArg(f"--frontend-config {frontend.name},{_PORT}: got '{port}', expected 65535 at most")
    return Settings(
        port,
        given.get(_ADDRESS, _DEFAULT.address),
        whole(_BODY, _DEFAULT.max_body_bytes, 1),
    )
