"""The settings of `--cache-config redis,key=value`: those of Triton's Redis cache, and five more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tritonpy.plugin import InvalidArg

USER_VARIABLE = "TRITONREDIS_USERNAME"
PASSWORD_VARIABLE = "TRITONREDIS_PASSWORD"

_WHERE = "Failed to initialize RedisCache"


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The address and account of Redis, and the lifetime of entries there.

    Attributes:
        host, port: where it listens.
        user, password: the account; "" for none.
        db: the number of the database.
        connect_timeout_s, socket_timeout_s, wait_timeout_s: for a connection, an answer, and a connection
            that others use; None for no limit but that of `--cache-timeout-ms`.
        pool_size: connections at once.
        uses_tls: speak TLS.
        cert, key: PEM files of ours, where Redis asks for a certificate.
        cacert, cacert_dir: the authorities that are trusted instead of the system's.
        sni: the name that the certificate of Redis must have, in place of the host.
        key_prefix: what our keys begin with.
        ttl_ms: how long an entry is kept; None until Redis needs the room.
        is_required: the server does not start without Redis.
    """

    host: str
    port: int
    user: str = ""
    password: str = ""
    db: int = 0
    connect_timeout_s: float | None = None
    socket_timeout_s: float | None = None
    wait_timeout_s: float | None = 1.0
    pool_size: int = 8
    uses_tls: bool = False
    cert: str = ""
    key: str = ""
    cacert: str = ""
    cacert_dir: str = ""
    sni: str = ""
    key_prefix: str = "tritonpy:"
    ttl_ms: int | None = None
    is_required: bool = True


def _number(least: int, most: int = 2**31 - 1) -> Callable[[str, str], int]:
    def read(key: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
            raise InvalidArg(f"{_WHERE}: '{key}' is '{text}', expected a number from {least} to {most}")
        return int(text)

    return read


def _milliseconds(key: str, text: str) -> float | None:
    return _number(0)(key, text) / 1000 or None


def _ttl(key: str, text: str) -> int:
    return _number(1)(key, text) * 1000


def _first_line(key: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not UTF-8"
        raise InvalidArg(f"{_WHERE}: '{key}' is '{path}', which cannot be read: {reason}") from None


def _switch(key: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidArg(f"{_WHERE}: '{key}' is '{text}', expected true or false")
    return text == "true"


def _text(key: str, text: str) -> str:
    return text


_READERS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    # setting: field, reader
    "host": ("host", _text),
    "port": ("port", _number(1, 65535)),
    "user": ("user", _text),
    "password": ("password", _text),
    "password_file": ("password", _first_line),
    "db": ("db", _number(0)),
    "connect_timeout": ("connect_timeout_s", _milliseconds),
    "socket_timeout": ("socket_timeout_s", _milliseconds),
    "wait_timeout": ("wait_timeout_s", _milliseconds),
    "pool_size": ("pool_size", _number(1, 10_000)),
    "tls_enabled": ("uses_tls", _switch),
    "cert": ("cert", _text),
    "key": ("key", _text),
    "cacert": ("cacert", _text),
    "cacert_dir": ("cacert_dir", _text),
    "sni": ("sni", _text),
    "key_prefix": ("key_prefix", _text),
    "ttl": ("ttl_ms", _ttl),
    "required": ("is_required", _switch),
}


def read_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> RedisSettings:
    """Read and check the settings; what they do not say of user and password is in the environment.

    Raises:
        InvalidArg: one is missing, unknown or makes no sense; says which, and what was expected.
    """
    if "host" not in settings or "port" not in settings:
        raise InvalidArg(
            f"{_WHERE}, didn't specify address. It needs a host and a port: --cache-config redis,host=<name> "
            f"--cache-config redis,port=<number>"
        )
    unknown = sorted(set(settings) - set(_READERS))
    if unknown:
        raise InvalidArg(
            f"{_WHERE}: unknown settings {', '.join(unknown)}; there are {', '.join(sorted(_READERS))}"
        )
    if "password" in settings and "password_file" in settings:
        raise InvalidArg(f"{_WHERE}: 'password' and 'password_file' are both given; expected one of them")
    given = {"user": environ.get(USER_VARIABLE, ""), "password": environ.get(PASSWORD_VARIABLE, "")}
    values = {_READERS[key][0]: _READERS[key][1](key, text) for key, text in (given | dict(settings)).items()}
    read = RedisSettings(**values)  # type: ignore[arg-type]  # each reader makes what its field wants
    if bool(read.cert) != bool(read.key):
        raise InvalidArg(f"{_WHERE}: 'cert' and 'key' must be given together")
    if not read.uses_tls and any((read.cert, read.cacert, read.cacert_dir, read.sni)):
        raise InvalidArg(f"{_WHERE}: 'cert', 'key', 'cacert', 'cacert_dir' and 'sni' need 'tls_enabled=true'")
    return read
