"""Which headers of a request become parameters of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tritonpy.errors import InvalidArg

_RESERVED = frozenset(
    (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    )
)
"""Names that mean something to the server; a header must not be able to say it in the client's stead."""

# What RE2 writes otherwise than `re`.
_RE2_WORDS = {
    r"\z": r"\Z",
    r"\C": r"(?s:.)",
    r"[:alnum:]": "a-zA-Z0-9",
    r"[:alpha:]": "a-zA-Z",
    r"[:digit:]": "0-9",
    r"[:lower:]": "a-z",
    r"[:upper:]": "A-Z",
    r"[:punct:]": r"!-/:-@\[-`{-~",
    r"[:space:]": r"\s",
    r"[:word:]": r"\w",
    r"[:xdigit:]": "0-9A-Fa-f",
}
_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[:\w+:\]|\(\?[imsU]+\)|\(\?(?:<?[=!]|P=|\(|<)|.", re.DOTALL)


class HeaderForwarding:
    """Finds the headers that a pattern names: anywhere in the name, in whatever case.

    Patterns are RE2 expressions, as for Triton: what RE2 lacks (looking around, referring back) is refused,
    so that what works here works there.

    Args:
        pattern: a regular expression.
        flag: the option it was given by, for the message that refuses it.

    Raises:
        InvalidArg: it is no regular expression.
    """

    MOST_REMEMBERED = 1024
    LONGEST_NAME = 256

    def __init__(self, pattern: str, flag: str) -> None:
        try:
            self._expression = compile_pattern(pattern)
        except re.error as exc:
            raise InvalidArg(f"{flag}: '{pattern}' is not a regular expression: {exc}") from None
        self._known: dict[bytes, bool] = {}

    def finds(self, name: bytes) -> bool:
        """Whether the header of this name is forwarded; names beyond `LONGEST_NAME` bytes never are."""
        known = self._known.get(name)
        if known is None:
            if len(name) > self.LONGEST_NAME:
                return False
            if len(self._known) >= self.MOST_REMEMBERED:
                self._known.clear()
            known = self._known[name] = self._expression.search(name.decode("latin-1")) is not None
        return known


def forwarded_parameters(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Parameters from headers that were found, under the names that the client wrote.

    Raises:
        InvalidArg: a header has a name that means something to the server, or a value that is no text.
    """
    parameters: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.decode("latin-1")
        if name in _RESERVED or name.startswith("triton_"):
            raise InvalidArg(f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")
        try:
            parameters[name] = value.decode()
        except UnicodeDecodeError as exc:
            raise InvalidArg(
                f"Header '{name}' cannot be forwarded: its value is not UTF-8: {exc.reason} at {exc.start}"
            ) from None
    return parameters


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """An RE2 expression that finds names in whatever case.

    Raises:
        re.error: it is none.
    """
    return re.compile(_from_re2(pattern), re.IGNORECASE | re.ASCII)


def _from_re2(pattern: str) -> str:
    """The same expression for Python's `re`."""
    flags = ""
    parts = []
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        if token.startswith("\\Q"):
            parts.append(re.escape(token[2:].removesuffix("\\E")))
        elif re.fullmatch(r"\(\?[imsU]+\)", token):
            flags += token[2:-1]  # in `re` they stand at the beginning and count everywhere
        elif token == "(?<":
            parts.append("(?P<")
        elif token.startswith("(?") or (token[0] == "\\" and token[1:].isdigit()):
            raise re.error(f"RE2 knows no '{token}'", pattern, match.start())
        else:
            parts.append(_RE2_WORDS.get(token, token))
    flags = flags.replace("U", "")  # which of several matches is found makes no difference
    return (f"(?{flags})" if flags else "") + "".join(parts)
