"""Write a model configuration, given as a plain dict, in protobuf text format.

Only what text format needs to know about the schema stands here: which fields are enums (their values are
written bare) and which are maps (their entries are written as key and value). Everything else follows from
the Python type, so a field that Triton adds tomorrow works unless it is one of these two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

_ENUMS = {"data_type", "format", "kind", "priority", "timeout_action"}
_MAPS = {
    "parameters",
    "cc_model_filenames",
    "metric_tags",
    "input_map",
    "output_map",
    "inputs",
    "priority_queue_policy",
}


def format_config(config: Mapping[str, object]) -> str:
    """Return `config`, in the JSON shape of `GET /v2/models/<name>/config`, as the text of a `config.pbtxt`.

    Raises:
        TypeError: a value is of a type that JSON does not have, or null.
    """
    return "".join(f"{line}\n" for line in _message(config))


def _message(fields: Mapping[str, object]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and (name in _MAPS or name == "input"):  # `graph_spec.input` is a map
            for key, entry in value.items():  # JSON knows only text keys; priority levels are numbers
                level = int(key) if name == "priority_queue_policy" else key
                yield from _field(name, {"key": level, "value": entry})
        elif isinstance(value, list | tuple):
            for element in value:
                yield from _field(name, element)
        else:
            yield from _field(name, value)


def _field(name: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield f"{name} {{"
        yield from (f"  {line}" for line in _message(value))
        yield "}"
    elif isinstance(value, str) and name not in _ENUMS:
        yield f"{name}: {json.dumps(value, ensure_ascii=False)}"
    elif isinstance(value, bool):
        yield f"{name}: {str(value).lower()}"
    elif isinstance(value, str | int | float):
        yield f"{name}: {value}"
    else:
        raise TypeError(f"configuration field '{name}': cannot write {value!r}")
