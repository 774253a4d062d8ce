"""A configuration as a plain dict, as clients and plugins see it, and as text: pbtxt, JSON or YAML."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

from google.protobuf import text_format
from google.protobuf.message import Message

from tritonpy.config.field_types import Field, Value, message_fields
from tritonpy.protos import POOL, ModelConfig

_EXACT_WHOLE = 2.0**53
_LARGEST_FLOAT32 = (2 - 2.0**-23) * 2.0**127

JsonObject = dict[str, Any]  # Any: JSON


def config_to_dict(config: ModelConfig, *, with_defaults: bool = True) -> JsonObject:
    """Show a configuration: every plain field even at its default, messages only where they are set.

    Args:
        config: what is shown.
        with_defaults: False leaves out plain fields, lists and maps that are not set.

    Keys come in Triton's order, maps sorted by key. All integers are numbers; the protobuf JSON mapping would
    write 64-bit ones as strings, and Triton does so for three rare fields (`graph_spec` dimensions,
    `secondary_devices.device_id`, `initial_state.dims`).
    """
    return _show_message(with_defaults, config)


def _show_message(with_defaults: bool, message: Message) -> JsonObject:
    given = {field.name: value for field, value in message.ListFields()}
    shown: JsonObject = {}
    for field, show in _fields(message.DESCRIPTOR.full_name, with_defaults):
        name = field.name
        if name in given:
            value = given[name]
        elif with_defaults and not field.has_presence:
            value = getattr(message, name)
        else:
            continue
        if field.map_key is not None:
            shown[name] = {str(key): show(value[key]) if show else value[key] for key in sorted(value)}
        elif field.is_repeated:
            shown[name] = [show(element) for element in value] if show else list(value)
        else:
            shown[name] = show(value) if show else value
    return shown


Show = Callable[[Any], object]  # Any: what protobuf holds


@cache
def _fields(message: str, with_defaults: bool) -> Sequence[tuple[Field, Show | None]]:
    """The fields of a message, each with a function that shows a value of it; None for one shown as it is."""
    return [(field, _printer(with_defaults, field.value)) for field in message_fields(message)]


def _printer(with_defaults: bool, value: Value) -> Show | None:
    match value.kind:
        case "message":
            return partial(_show_message, with_defaults)
        case "enum":
            return partial(_show_enum, value)
        case "float32":
            return _show_float32
        case "float64":
            return _show_float
        case _:
            return None


def _show_enum(enum: Value, number: int) -> object:
    return enum.enum_names.get(number, number)


def _show_float(number: float) -> object:
    """A number as protobuf's JSON writes it: whole ones without a fraction, special ones as words."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    is_short = abs(number) < _EXACT_WHOLE and (number != 0 or math.copysign(1, number) > 0)
    return int(number) if is_short and number.is_integer() else number


def _show_float32(number: float) -> object:
    """The shortest decimal that is the same 32-bit float: 0.3 and not 0.30000001192092896."""
    if math.isfinite(number):
        packed = struct.pack("<f", number)
        for digits in range(1, 10):  # nine always suffice
            short = float(f"{number:.{digits}g}")
            if _fits_float32(short) and struct.pack("<f", short) == packed:
                return _show_float(short)
    return _show_float(number)


def _fits_float32(number: float) -> bool:
    return abs(number) <= _LARGEST_FLOAT32


ConfigForm = Literal["pbtxt", "json", "yaml"]
"""Form of a written configuration: protobuf text format, JSON or YAML."""


def write_config(config: ModelConfig, form: ConfigForm) -> str:
    """Write a configuration so that reading the text gives the same configuration again.

    Args:
        config: read from a file, or settled; only what is set in it is written.
        form: fields stand in Triton's order in all of them.

    Returns:
        Text that ends with a line break; "" or an empty object for a configuration in which nothing is set.
    """
    match form:
        case "pbtxt":
            return _write_text(config)
        case "json":
            return json.dumps(given_fields(config), indent=2, ensure_ascii=False) + "\n"
        case "yaml":
            from tritonpy.config.yaml_text import write_yaml  # a library that only YAML needs

            return write_yaml(given_fields(config))


def given_fields(config: ModelConfig) -> JsonObject:
    """The configuration as JSON values, in the shape of `config_to_dict`, without what is not set."""
    return config_to_dict(config, with_defaults=False)


def _write_text(config: ModelConfig) -> str:
    text: str = text_format.MessageToString(
        config,
        as_utf8=True,
        use_index_order=True,  # the order of our descriptors, which is that of Triton's answers
        use_short_repeated_primitives=True,
        descriptor_pool=POOL,
    )
    return text
