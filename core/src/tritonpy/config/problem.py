"""Why a text cannot be read as a configuration, and where in it."""

from __future__ import annotations


class Problem(Exception):
    """What is wrong with a text; as text `line 3, column 5: …`, as far as the place is known.

    Args:
        reason: what is wrong.
        line, column: where, from 1.

    Attributes:
        reason, line, column: as given.
    """

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        place = "" if line is None else f"line {line}: "
        if column is not None:
            place = f"line {line}, column {column}: "
        super().__init__(place + reason)
        self.reason = reason
        self.line = line
        self.column = column
