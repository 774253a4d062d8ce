"""JSON text of configurations, and the line and column of a field in JSON, YAML or text format."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out

from tritonpy.config.config_error import Problem, shown
from tritonpy.config.read import Steps
from tritonpy.config.write import ConfigForm

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
    """Offsets of a key or element, and of its value, in the object or list at `position`."""
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


Place = tuple[int, int]
"""Line and column, from 1."""

# What text format is made of, as far as it matters here: a string or comment may hold anything.
_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|[{}<>\[\]]""")


def place_of_field(text: str, form: ConfigForm, field: str, value: str = "") -> Place | None:
    """Line and column of a top-level field; of several, the first.

    Args:
        text: a configuration that has been read.
        form: how it is written.
        field: a field such as `input`.
        value: a text of that field; where it is found, its place is returned instead.
    """
    match form:
        case "pbtxt":
            return _in_text_format(text, field, value)
        case "json":
            start = _offset(text, find_place(text, (field,)))
            is_there = text.startswith(f'"{field}"', start)
        case "yaml":
            place = _yaml_places(text).get((field,))
            start, is_there = (0, False) if place is None else (_offset(text, place), True)
    if not is_there:
        return None
    found = re.compile(rf"(?<![\w-])[\"']?{re.escape(value)}(?![\w-])").search(text, start) if value else None
    return _place(text, found.start() if found else start)


@lru_cache(maxsize=1)  # a text with one error is looked up again for each of its errors
def _yaml_places(text: str) -> Mapping[Steps, Place]:
    from tritonpy.config.yaml_text import read_yaml  # a library that only YAML needs

    return read_yaml(text)[1]


def _in_text_format(text: str, field: str, value: str) -> Place | None:
    depth = 0
    found = -1
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{<[":
            depth += 1
        elif word in "}>]":
            depth -= 1
        elif depth == 0 and word == field and found < 0:
            found = token.start()
            if not value:
                break
        elif found >= 0 and word[0] in "\"'" and word[1:-1] == value:
            found = token.start()
            break
    return None if found < 0 else _place(text, found)


def _offset(text: str, place: Place) -> int:
    line, column = place
    start = 0
    for _ in range(line - 1):
        start = text.index("\n", start) + 1
    return start + column - 1


def _place(text: str, offset: int) -> Place:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
