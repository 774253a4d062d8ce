"""What goes wrong in bound functions, and how clients hear of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_HERE = str(Path(__file__).parent)


class UnrecoverableError(Exception):
    """A function that raises this cannot go on: its model is not ready any more, and refuses requests."""


class BadResult(Exception):
    """A function has returned what cannot be sent."""


def described(exc: BaseException) -> str:
    """Type and text of an exception, then the lines that it passed through, innermost first."""
    if isinstance(exc, BadResult):
        return str(exc)
    text = f"{type(exc).__name__}: {exc}"
    lines = list(_lines(exc.__traceback__))
    return f"{text}\n\nAt:\n" + "".join(reversed(lines)) if lines else text


def _lines(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_HERE):
            yield f"  {code.co_filename}({traceback.tb_lineno}): {code.co_name}\n"
        traceback = traceback.tb_next
