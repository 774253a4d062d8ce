"""A configuration as the plain dict that `GET /v2/models/<name>/config` answers and plugins read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.message import Message

from tritonpy.config.fields import Field, Value, message_fields
from tritonpy.config.read import config_from_dict as config_from_dict
from tritonpy.config.schema import ModelConfig

JsonObject = dict[str, Any]  # Any: JSON


def config_to_dict(config: ModelConfig) -> JsonObject:
    """Show a configuration: every plain field even at its default, messages only where they are set.

    Keys come in Triton's order, maps sorted by key. All integers are numbers; the protobuf JSON mapping would
    write 64-bit ones as strings, and Triton does so for three rare fields (`graph_spec` dimensions,
    `secondary_devices.device_id`, `initial_state.dims`).
    """
    return _show_message(config)


def _show_message(message: Message) -> JsonObject:
    return {
        field.name: _show_field(field, getattr(message, field.name))
        for field in message_fields(message.DESCRIPTOR.full_name)
        if not field.has_presence or message.HasField(field.name)
    }


def _show_field(field: Field, value: Any) -> object:  # Any: whatever protobuf holds there
    show = _printer(field.value)
    if field.map_key is not None:
        return {str(key): show(value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [show(element) for element in value]
    return show(value)


def _printer(value: Value) -> Callable[[Any], object]:  # Any: whatever protobuf holds there
    match value.kind:
        case "message":
            return _show_message
        case "enum":
            return partial(_show_enum, value)
        case "float32":
            return _show_float32
        case "float64":
            return _show_float
        case _:
            return _show_plain


def _show_plain(value: object) -> object:
    return value


def _show_enum(enum: Value, number: int) -> object:
    return enum.enum_names.get(number, number)


def _show_float(number: float) -> object:
    """A number as protobuf's JSON writes it: whole ones without a fraction, special ones as words."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    return int(number) if number.is_integer() else number


def _show_float32(number: float) -> object:
    """The shortest decimal that is the same 32-bit float: 0.3 and not 0.30000001192092896."""
    if number != number or number in (float("inf"), float("-inf")) or number.is_integer():
        return _show_float(number)
    packed = struct.pack("<f", number)
    for digits in range(6, 9):
        short = float(f"{number:.{digits}g}")
        if struct.pack("<f", short) == packed:
            return short
    return float(f"{number:.9g}")
