"""Types of the fields of protobuf messages, read from their descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tritonpy.protos import POOL

Kind = Literal["message", "enum", "bool", "str", "int", "float32", "float64"]

_KINDS: dict[int, Kind] = {
    FieldDescriptor.CPPTYPE_MESSAGE: "message",
    FieldDescriptor.CPPTYPE_ENUM: "enum",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_STRING: "str",
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_UINT32: "int",
    FieldDescriptor.CPPTYPE_UINT64: "int",
    FieldDescriptor.CPPTYPE_FLOAT: "float32",
    FieldDescriptor.CPPTYPE_DOUBLE: "float64",
}


@dataclass(frozen=True, slots=True)
class Value:
    """The type of one value.

    Attributes:
        kind: what it is.
        message: the full name of its message; "" unless `kind` is `message`.
        enum_names: name of each number; empty unless `kind` is `enum`.
    """

    kind: Kind
    message: str
    enum_names: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        name: as in `config.pbtxt`.
        camel_name: the other spelling that JSON may use.
        is_repeated: a list.
        map_key: the kind of the keys if the field is a map; None otherwise.
        has_presence: the field may be absent, and then is not shown.
        oneof: the group of which only one field may be set; "" if it is in none.
        value: the type of the field, of the elements of a list, of the values of a map.
    """

    name: str
    camel_name: str
    is_repeated: bool
    map_key: Kind | None
    has_presence: bool
    oneof: str
    value: Value


@cache
def message_fields(message: str) -> tuple[Field, ...]:
    """The fields of the message with this full name, in the order in which they are shown."""
    return tuple(_field(field) for field in POOL.FindMessageTypeByName(message).fields)


def _field(field: FieldDescriptor) -> Field:
    entry = field.message_type
    key: Kind | None = None
    is_repeated = _is_repeated(field)
    value = field
    if entry is not None and entry.GetOptions().map_entry:
        key = _KINDS[entry.fields_by_name["key"].cpp_type]
        value = entry.fields_by_name["value"]
        is_repeated = False
    oneof = field.containing_oneof
    return Field(
        field.name,
        field.camelcase_name,
        is_repeated,
        key,
        field.has_presence,
        oneof.name if oneof is not None else "",
        _value(value),
    )


def _value(field: FieldDescriptor) -> Value:
    message: Descriptor | None = field.message_type
    enum = field.enum_type
    return Value(
        _KINDS[field.cpp_type],
        message.full_name if message is not None else "",
        {value.number: value.name for value in enum.values} if enum is not None else {},
    )


def _is_repeated(field: FieldDescriptor) -> bool:
    # protobuf 6.31 brought `is_repeated` and warns about `label` since; older ones have only `label`.
    repeated: bool | None = getattr(field, "is_repeated", None)
    if repeated is None:
        repeated = getattr(field, "label") == FieldDescriptor.LABEL_REPEATED  # noqa: B009  # gone from stubs
    return repeated
