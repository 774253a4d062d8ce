"""The error about a text that cannot be read as a configuration, with its line and column."""

from __future__ import annotations

_MOST_SHOWN = 200
_LONGEST_REASON = 1000  # a parser's own words repeat what they are about, which may be all of the text


def shown(name: str, most: int = _MOST_SHOWN) -> str:
    """A name or path from a configuration, cut and escaped for errors.

    JSON can hold halves of characters, which no answer and no log can.
    """
    name = name if len(name) <= most else f"{name[:most]}…"
    return name.encode(errors="backslashreplace").decode()


class Problem(Exception):
    """An error in a text; reads `line 3, column 5: …`, as far as the place is known.

    Args:
        reason: what is wrong.
        line, column: where, from 1.

    Attributes:
        reason, line, column: as given; a very long reason is cut.
    """

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        reason = shown(reason, _LONGEST_REASON)
        place = "" if line is None else f"line {line}: "
        if column is not None:
            place = f"line {line}, column {column}: "
        super().__init__(place + reason)
        self.reason = reason
        self.line = line
        self.column = column
