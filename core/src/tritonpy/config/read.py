"""Reader of configurations from JSON values: load overrides, and results of a backend's auto-complete."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from google.protobuf.message import Message

from tritonpy.config.config_error import shown
from tritonpy.config.field_types import Field, Kind, Value, message_fields
from tritonpy.errors import InvalidArg
from tritonpy.protos import ModelConfig

Steps = tuple[str | int, ...]
"""The way to a value: keys of objects and positions in lists."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The place of a value: as errors write it, and as steps."""

    text: str = ""
    steps: Steps = ()

    def field(self, name: str) -> _Path:
        return _Path(f"{self.text}.{shown(name)}" if self.text else shown(name), (*self.steps, name))

    def entry(self, key: object) -> _Path:
        return _Path(f"{self.text}['{shown(str(key))}']", (*self.steps, str(key)))

    def element(self, index: int) -> _Path:
        return _Path(f"{self.text}[{index}]", (*self.steps, index))


class Misfit(InvalidArg):
    """A value of the wrong kind for its field.

    Attributes:
        steps: the way to it.
    """

    def __init__(self, message: str, steps: Steps) -> None:
        super().__init__(message)
        self.steps = steps


def config_from_dict(document: Mapping[str, object], model_name: str) -> ModelConfig:
    """Read a configuration in the shape of `GET /v2/models/<name>/config`; anything may be left out.

    The protobuf JSON mapping holds, as widely as Triton reads it: `max_batch_size` may be written
    `maxBatchSize`, numbers and truth values as strings, enums by number or by name in either case, a list of
    one message as that message; null leaves a field unset.

    Args:
        document: JSON values.
        model_name: the model, for errors.

    Raises:
        InvalidArg: names the field and says what was expected there; a field that does not exist is refused.
    """
    try:
        return read_document(document)
    except Misfit as exc:
        raise InvalidArg(f"the configuration of model '{model_name}' is not valid: {exc}") from exc


def read_document(document: object) -> ModelConfig:
    """Like `config_from_dict`, for a file whose reader knows the position of each value.

    Raises:
        Misfit: names the field and says what was expected there.
    """
    config = ModelConfig()
    _read_message(config, document, _Path())
    return config


def check_enums(message: Message, path: _Path = _Path()) -> None:
    """Refuse numbers that no member of an enum has; protobuf's text format accepts them.

    Raises:
        Misfit: names the field and says what was expected there.
    """
    given = {field.name: value for field, value in message.ListFields()}
    for field in _fields_with_enums(message.DESCRIPTOR.full_name):
        value = given.get(field.name)
        if value is None:
            continue
        here = path.field(field.name)
        if field.map_key is not None:
            values = [(here.entry(key), value[key]) for key in sorted(value)]
        elif field.is_repeated:
            values = [(here.element(index), element) for index, element in enumerate(value)]
        else:
            values = [(here, value)]
        for place, element in values:
            if field.value.kind == "message":
                check_enums(element, place)
            elif element not in field.value.enum_names:
                raise _unexpected(place, element, f"one of {', '.join(field.value.enum_names.values())}")


@cache
def _fields_with_enums(message: str) -> tuple[Field, ...]:
    """The fields of a message that are enums, or messages with some at any depth."""
    return tuple(
        field
        for field in message_fields(message)
        if field.value.kind == "enum" or (field.value.message and _fields_with_enums(field.value.message))
    )


def _read_message(message: Message, values: object, path: _Path) -> None:
    if not isinstance(values, Mapping):
        raise _unexpected(path, values, "an object")
    fields = message_fields(message.DESCRIPTOR.full_name)
    names = {field.name: field for field in fields} | {field.camel_name: field for field in fields}
    seen: dict[str, str] = {}
    for name, value in values.items():
        here = path.field(str(name))
        field = names.get(name)
        if field is None:
            raise _unknown_field(str(name), path, [field.name for field in fields])
        if value is None:
            continue
        group = field.oneof or field.name
        if group in seen:
            raise Misfit(f"field '{here.text}': '{seen[group]}' is already set", here.steps)
        seen[group] = str(name)
        _read_field(message, field, value, here)


def _read_field(message: Message, field: Field, value: object, path: _Path) -> None:
    target = getattr(message, field.name)
    if field.map_key is not None:
        _read_map(target, field.map_key, field.value, value, path)
    elif field.is_repeated:
        for index, element in enumerate(_elements(field, value, path)):
            here = path.element(index)
            if field.value.kind == "message":
                _read_message(target.add(), element, here)
            else:
                _store(target.append, _plain(field.value, element, here), here)
    elif field.value.kind == "message":
        target.SetInParent()
        _read_message(target, value, path)
    else:
        plain = _plain(field.value, value, path)
        _store(partial(setattr, message, field.name), plain, path)


def _elements(field: Field, value: object, path: _Path) -> Sequence[object]:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping) and field.value.kind == "message":
        return [value]  # Triton takes a single message for a list of one
    raise _unexpected(path, value, "a list")


def _read_map(
    target: Any, key_kind: Kind, value_type: Value, values: object, path: _Path
) -> None:  # Any: a map
    if not isinstance(values, Mapping):
        raise _unexpected(path, values, "an object")
    for key, value in values.items():
        here = path.entry(key)
        typed_key = _whole(key, here) if key_kind == "int" else key
        if key_kind == "str" and not isinstance(key, str):
            raise _unexpected(here, key, "a string as key")
        if value_type.kind == "message":
            _store(target.__getitem__, typed_key, here)  # looking it up makes the entry
            _read_message(target[typed_key], value, here)
        else:
            plain = _plain(value_type, value, here)
            _store(partial(target.__setitem__, typed_key), plain, here)


def _plain(value_type: Value, value: object, path: _Path) -> object:
    match value_type.kind:
        case "enum":
            return _enum(value_type, value, path)
        case "bool":
            if isinstance(value, bool):
                return value
            if value in ("true", "false"):  # Triton takes these words, too
                return value == "true"
            raise _unexpected(path, value, "true or false")
        case "str":
            if isinstance(value, str):
                return value
            raise _unexpected(path, value, "a string")
        case "int":
            return _whole(value, path)
        case _:
            return _number(value, path)


def _enum(enum: Value, value: object, path: _Path) -> int:
    if isinstance(value, str):
        for number, name in enum.enum_names.items():
            if value.upper() in (name, str(number)):
                return number
    elif isinstance(value, int) and not isinstance(value, bool) and value in enum.enum_names:
        return value
    raise _unexpected(path, value, f"one of {', '.join(enum.enum_names.values())}")


def _whole(value: object, path: _Path) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch("[-+]?[0-9]{1,40}", value):
        return int(value)
    raise _unexpected(path, value, "a whole number")


def _number(value: object, path: _Path) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    raise _unexpected(path, value, "a number")


def _store(store: Callable[[Any], object], value: object, path: _Path) -> None:  # Any: what protobuf takes
    """Hand a value of the right kind to protobuf, which checks its range and its UTF-8."""
    try:
        store(value)
    except (ValueError, TypeError, OverflowError) as exc:
        raise Misfit(f"field '{path.text}': {exc}", path.steps) from exc


def _unexpected(path: _Path, value: object, expected: str) -> Misfit:
    where = f"field '{path.text}'" if path.text else "as a whole"
    try:
        got = repr(value)
    except RecursionError:  # what is just not nested too deeply to be read
        got = f"a {type(value).__name__} of many levels"
    if len(got) > 80:
        got = f"{got[:77]}..."
    return Misfit(f"{where}: got {got}, expected {expected}", path.steps)


def _unknown_field(name: str, path: _Path, known: list[str]) -> Misfit:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else f"; fields here are {', '.join(known)}"
    where = f" in '{path.text}'" if path.text else ""
    return Misfit(f"no field is called '{shown(name)}'{where}{hint}", path.field(name).steps)
