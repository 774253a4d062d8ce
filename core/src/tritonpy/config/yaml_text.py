"""YAML text of configurations: plain values only, and the line and column of each.

The safe part of YAML 1.2: mappings, lists, text, numbers, `true`, `false` and `null`. Words such as `yes` and
times such as `12:30` are text. Anchors and aliases are refused, because a few lines of them can stand for
gigabytes, and so are tags, which name types of a program. PyYAML's parser written in Python is used, not its
quicker one in C: that would hold the interpreter's lock, and with it all requests, as long as it works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tritonpy.config.config_error import Problem, shown
from tritonpy.config.read import Steps

_STRING = "tag:yaml.org,2002:str"
_PLAIN_TAGS = {
    "tag:yaml.org,2002:null": re.compile(r"~|null|Null|NULL|"),
    "tag:yaml.org,2002:bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "tag:yaml.org,2002:int": re.compile(r"[-+]?[0-9]+"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    ),
}
_LINE_BREAKS = re.compile("[\r\n\x85\u2028\u2029]")
_MOST_DIGITS = 400
"""Longer numbers are refused: reading one takes time with the square of its length."""


def read_yaml(text: str) -> tuple[object, Mapping[Steps, tuple[int, int]]]:
    """Read one document.

    Returns:
        The values, and where each key and list element stands: line and column, from 1. An empty document is
        an empty mapping.

    Raises:
        Problem: it is no YAML, or more than a configuration may use of it.
    """
    places: dict[Steps, tuple[int, int]] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        values = {} if node is None else _read_node(node, (), places)
    except yaml.MarkedYAMLError as exc:
        reason = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise _problem(reason, exc.problem_mark or exc.context_mark) from exc
    except yaml.reader.ReaderError as exc:
        before = text[: exc.position]
        column = exc.position - (before.rfind("\n") + 1) + 1
        raise Problem(
            f"{exc.reason}: U+{ord(text[exc.position]):04X}", before.count("\n") + 1, column
        ) from exc
    except RecursionError as exc:
        raise Problem("it is nested too deeply") from exc
    return values, places


def write_yaml(document: Mapping[str, object]) -> str:
    """Write plain values: mappings in blocks, lists of plain values in one line."""
    if not document:
        return ""
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=10**9,  # a long text stays in its line, so that searching for it finds it
    )
    return text


class _Loader(yaml.SafeLoader):
    """Only makes nodes; values are made of them by `_read_node`."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # Any: PyYAML's
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _problem("anchors and aliases (& and *) have no place in a configuration", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes what any version of YAML would take for something other than text."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)  # lists stand further right than their key

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    # Other styles fold the breaks of lines that YAML 1.1 knows, and blanks come back in their place.
    return dumper.represent_scalar(_STRING, text, style='"' if _LINE_BREAKS.search(text) else None)


def _represent_list(dumper: _Dumper, values: list[object]) -> yaml.Node:
    is_plain = not any(isinstance(value, dict | list) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_plain)


_Loader.yaml_implicit_resolvers = {}  # not those of YAML 1.1
for _tag, _pattern in _PLAIN_TAGS.items():
    _whole = re.compile(f"^(?:{_pattern.pattern})$")
    _Loader.add_implicit_resolver(_tag, _whole, None)
    _Dumper.add_implicit_resolver(_tag, _whole, None)
_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_text)


def _read_node(node: yaml.Node, steps: Steps, places: dict[Steps, tuple[int, int]]) -> object:
    if isinstance(node, yaml.ScalarNode):
        return _read_scalar(node)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        values = []
        for index, element in enumerate(node.value):
            places[*steps, index] = _place(element.start_mark)
            values.append(_read_node(element, (*steps, index), places))
        return values
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        entries: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _problem("a key is a mapping or a list, expected text", key.start_mark)
            name = str(key.value)  # as it is written: `8.0` and `1` are text where they are keys
            if name in entries:
                raise _problem(f"'{shown(name)}' is there twice", key.start_mark)
            places[*steps, name] = _place(key.start_mark)
            entries[name] = _read_node(value, (*steps, name), places)
        return entries
    raise _problem(f"tag '{node.tag}' has no place in a configuration", node.start_mark)


def _read_scalar(node: yaml.ScalarNode) -> object:
    text: str = node.value
    if node.tag == _STRING:
        return text
    pattern = _PLAIN_TAGS.get(node.tag)
    if pattern is None or not pattern.fullmatch(text):
        raise _problem(f"tag '{node.tag}' has no place in a configuration", node.start_mark)
    if len(text) > _MOST_DIGITS:
        raise _problem(f"a number of {len(text)} characters", node.start_mark)
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case _:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _place(mark: yaml.Mark) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _problem(reason: str, mark: yaml.Mark | None) -> Problem:
    line, column = _place(mark) if mark is not None else (None, None)
    return Problem(reason, line, column)
