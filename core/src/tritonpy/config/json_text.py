"""JSON as configurations are written in it, and where in the text a value stands."""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out

from tritonpy.config.config_error import Problem, shown
from tritonpy.config.read import Steps

_DECODER = json.JSONDecoder()


def read_json(text: str) -> object:
    """Read JSON text; a key that an object has twice is refused.

    Raises:
        Problem: it is no JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as exc:
        raise Problem(exc.msg, exc.lineno, exc.colno) from exc
    except RecursionError as exc:
        raise Problem("it is nested too deeply") from exc
    except ValueError as exc:  # Python reads no longer ones, because that takes the square of their length
        raise Problem("a whole number has thousands of digits") from exc


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Problem(f"'{shown(double)}' is there twice")
    return entries


def find_place(text: str, steps: Steps) -> tuple[int, int]:
    """The line and the column, from 1, of a key or list element in text that `read_json` has read.

    Args:
        text: JSON.
        steps: the way to it; where it leads nowhere, the place is that of the last thing found.
    """
    found = position = _skip_blanks(text, 0)
    for step in steps:
        member = _find_member(text, position, step)
        if member is None:
            break
        found, position = member
    line_start = text.rfind("\n", 0, found) + 1
    return text.count("\n", 0, found) + 1, found - line_start + 1


def _find_member(text: str, position: int, step: str | int) -> tuple[int, int] | None:
    """Where the key (or the element), and where its value begins, in the object or list at `position`."""
    if text[position] not in "{[":
        return None
    is_object = text[position] == "{"
    position = _skip_blanks(text, position + 1)
    index = 0
    while text[position] not in "}]":
        start = position
        name: str | int = index
        if is_object:
            name, end = scanstring(text, position + 1)
            position = _skip_blanks(text, _skip_blanks(text, end) + 1)
        if name == step:
            return start, position
        _, end = _DECODER.raw_decode(text, position)
        position = _skip_blanks(text, end)
        if text[position] == ",":
            position = _skip_blanks(text, position + 1)
        index += 1
    return None


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position
