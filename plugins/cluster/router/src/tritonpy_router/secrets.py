"""The token that routers and replicas share."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
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


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe()


class TokenFile:
    """A file of this user's alone that has a token, for processes that are started.

    Args:
        token: to write; "" for a new one.

    Attributes:
        token: as given, or of nobody else.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token or new_token()
        self._path = self._write()

    def _write(self) -> str:
        descriptor, path = tempfile.mkstemp(prefix="tritonpy-replica-")  # nobody else may read it
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self.token)
        return path

    def path(self) -> str:
        """Where the file is.

        To be asked before each start: a fleet runs for longer than temporary files are kept on many machines,
        so the file is written anew where it is gone. It has another name then: somebody else may have made
        one of the name it had.

        Raises:
            OSError: it cannot be written.
        """
        if not self._is_there():
            self._path = self._write()
        return self._path

    def flags(self) -> list[str]:
        """With which a server offers the service on a port of this machine that the system chooses.

        Raises:
            OSError: see `path`.
        """
        return [
            "--frontend-config=replica,port=0",
            "--frontend-config=replica,address=127.0.0.1",
            f"--frontend-config=replica,token-file={self.path()}",
        ]

    def _is_there(self) -> bool:
        try:
            return read_token(self._path, "token-file") == self.token
        except InvalidArg:
            return False

    def remove(self) -> None:
        """Delete the file."""
        if self._is_there():
            with suppress(OSError):
                os.unlink(self._path)
