"""The token that routers and replicas share."""

from __future__ import annotations

from pathlib import Path

from tritonpy.errors import InvalidArg

_LEAST_TOKEN = 16


def read_token(path: str, flag: str) -> str:
    """The token in a file, which both sides know.

    Raises:
        InvalidArg: it cannot be read, is too short, or cannot stand in a header.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArg(f"{flag}: cannot read '{path}': {exc}") from None
    if len(token) < _LEAST_TOKEN:
        raise InvalidArg(
            f"{flag}: the token in '{path}' has {len(token)} characters, expected {_LEAST_TOKEN} or more; "
            f'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArg(f"{flag}: the token in '{path}' has characters other than letters, digits and signs")
    return token


def bearer(token: str) -> bytes:
    """The header `authorization` that a token is sent in."""
    return b"Bearer " + token.encode()
