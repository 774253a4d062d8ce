"""The configuration as a plain dict, in the shape of `GET /v2/models/<name>/config`, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from tritonpy.config.schema import ModelConfig
from tritonpy.errors import InvalidArg
from tritonpy.protos import POOL

Field = Any  # Any: a field descriptor, whose class differs between protobuf's implementations

_REPEATED = 3


def config_to_dict(config: ModelConfig) -> dict[str, Any]:  # Any: JSON
    """Show a configuration: every primitive field, and those sub-messages that are set.

    Unlike protobuf's own JSON, 64-bit integers are numbers, and a scalar in a oneof shows only when chosen.
    """
    return _message(config)


def config_from_dict(document: Mapping[str, Any], model_name: str) -> ModelConfig:  # Any: JSON
    """Make a configuration of what a plugin returned, or of an override.

    Raises:
        InvalidArg: an unknown field or a value of a wrong type; names it.
    """
    try:
        config = json_format.ParseDict(dict(document), ModelConfig(), descriptor_pool=POOL)
    except json_format.ParseError as exc:
        raise InvalidArg(f"the configuration of model '{model_name}' is not valid: {exc}") from exc
    return config


def _message(message: Message) -> dict[str, Any]:  # Any: JSON
    shown: dict[str, Any] = {}  # Any: JSON
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            shown[field.name] = _map(field, value)
        elif _is_repeated(field):
            shown[field.name] = [_single(field, element) for element in value]
        elif field.message_type is not None or field.containing_oneof is not None:
            if message.HasField(field.name):
                shown[field.name] = _single(field, value)
        else:
            shown[field.name] = _single(field, value)
    return shown


def _map(field: Field, value: Mapping[Any, Any]) -> dict[str, Any]:  # Any: JSON
    assert field.message_type is not None  # a map is a repeated message of key and value
    element = field.message_type.fields_by_name["value"]
    return {str(key): _single(element, value[key]) for key in sorted(value)}


def _single(field: Field, value: Any) -> Any:  # Any: a field's value, then JSON
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value


def _is_map(field: Field) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_repeated(field: Field) -> bool:
    try:
        return bool(field.is_repeated)
    except AttributeError:  # protobuf before 6.31
        return bool(field.label == _REPEATED)
