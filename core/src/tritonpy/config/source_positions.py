"""Where in the text of a configuration a field stands, for errors about a text that could be read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from tritonpy.config.json_text import find_place
from tritonpy.config.read import Steps
from tritonpy.config.write import ConfigForm

Place = tuple[int, int]
"""Line and column, from 1."""

# What text format is made of, as far as it matters here: a string or comment may hold anything.
_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|[{}<>\[\]]""")


def place_of_field(text: str, form: ConfigForm, field: str, value: str = "") -> Place | None:
    """Where a field of the whole configuration stands; of several, the first.

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


@lru_cache(maxsize=1)  # who asks once about a text asks about each thing that is wrong with it
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
