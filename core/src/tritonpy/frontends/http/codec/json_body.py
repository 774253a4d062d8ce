"""JSON as Triton reads it, with its words for what is wrong."""

from __future__ import annotations

from typing import Any

import orjson

from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.http.codec.json_scanner import WrongText, parse_laxly

Json = Any  # Any: JSON


_REQUEST = "the request JSON buffer"

MOST_LAX_HERE = 64 * 1024
"""Up to this size a text that the quick parser refuses is read here: the slow one needs 1 µs a byte."""


ELSEWHERE = object()
"""Stands for a document that has to be read elsewhere than on the loop."""


def parse_quickly(body: bytes | bytearray | memoryview) -> Json:
    """Parse a body on the loop, as `parse_json`; gives `ELSEWHERE` for one that would keep the loop busy.

    Raises:
        Internal, InvalidArg: as `parse_json`.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    return _parse_laxly(body, _REQUEST) if len(body) <= MOST_LAX_HERE else ELSEWHERE


def parse_json(body: bytes | bytearray | memoryview, what: str = _REQUEST) -> Json:
    """Parse a body; also what only Triton's parser takes: `NaN`, `Infinity`, strings that are not UTF-8.

    Args:
        body: the text.
        what: it is, for errors.

    Raises:
        Internal: it is not JSON; says where.
        InvalidArg: it is nested too deeply.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_laxly(body, what)


def _parse_laxly(body: bytes | bytearray | memoryview, what: str) -> Json:
    try:
        return parse_laxly(bytes(body))
    except WrongText as wrong:
        raise Internal(f"failed to parse {what}: {wrong.reason} at {wrong.offset}") from None


def member(document: Json, key: str) -> Json:
    """The value of a required member.

    Raises:
        Internal: `document` is no object or has no such member.
    """
    if not isinstance(document, dict) or key not in document:
        raise Internal(f"Unable to parse '{key}': attempt to access non-existing object member '{key}'")
    return document[key]


def string(value: Json, key: str) -> str:
    """`value` as a string, or an error that names `key`."""
    if not isinstance(value, str):
        raise Internal(f"Unable to parse '{key}': attempt to access JSON non-string as string")
    return value if value.isascii() else text(value, key)


def text(value: str, key: str) -> str:
    """`value`, which must be text: a name that is not UTF-8 could go nowhere from here."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArg(f"Unable to parse '{key}': expected UTF-8, got {value!a}") from None
    return value


def array(value: Json, key: str) -> list[Json]:
    """`value` as a list, or an error that names `key`."""
    if not isinstance(value, list):
        raise Internal(f"Unable to parse '{key}': attempt to access JSON non-array as array")
    return value


def unsigned(value: Json, key: str) -> int:
    """`value` as an integer of at least 0, or an error that names `key`."""
    if type(value) is not int or not 0 <= value <= 0xFFFF_FFFF_FFFF_FFFF:
        raise Internal(
            f"Unable to parse '{key}': attempt to access JSON non-unsigned-integer as unsigned-integer"
        )
    return value


def boolean(value: Json, key: str) -> bool:
    """`value` as a boolean, or an error that names `key`."""
    if not isinstance(value, bool):
        raise Internal(f"Unable to parse '{key}': attempt to access JSON non-boolean as boolean")
    return value
