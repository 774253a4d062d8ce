"""Headers of a request that become parameters of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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


class HeaderForwarding:
    """Finds the headers that a pattern names: anywhere in the name, in any case of letters.

    Patterns are RE2 expressions, as for Triton. Names are the clients': an engine that backtracks would stop
    the server for as long as one of them likes.

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
            self._search = compile_pattern(pattern)
        except ValueError as exc:
            raise InvalidArg(f"{flag}: '{pattern}' is not a regular expression: {exc}") from None
        self._known: dict[bytes, bool] = {}

    def finds(self, name: bytes) -> bool:
        """True if the header of this name is forwarded; names beyond `LONGEST_NAME` bytes never are."""
        known = self._known.get(name)
        if known is None:
            if len(name) > self.LONGEST_NAME:
                return False
            if len(self._known) >= self.MOST_REMEMBERED:
                self._known.clear()
            known = self._known[name] = self._search(name) is not None
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


def compile_pattern(pattern: str) -> Callable[[bytes], object]:
    """A search for an expression in a name, in any case of letters, in time linear in the name.

    Raises:
        ValueError: it is no RE2 expression, or `google-re2`, which some systems have no wheel of, is missing.
    """
    try:
        import re2  # of use only to those who forward headers
    except ImportError as exc:
        raise ValueError(f"patterns need the distribution google-re2: {exc}") from None
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    try:
        expression = re2.compile(pattern.encode(), options)
    except re2.error as exc:
        raise ValueError(exc.args[0].decode("utf-8", "replace")) from None
    search: Callable[[bytes], object] = expression.search
    return search
