"""JSON as Triton reads and writes it, with its words for what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson

from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg
from tritonpy.tensor import Array, Tensor

Json = Any  # Any: JSON

_NESTING_LIMIT = 100


def parse_json(body: bytes | bytearray | memoryview, what: str = "the request JSON buffer") -> Json:
    """Parse a body; the literals NaN, Infinity and -Infinity are numbers here.

    Raises:
        Internal: it is not JSON; says where.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        try:
            document = json.loads(bytes(body))  # slower, but knows NaN and Infinity
            json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair is no text
            return document
        except (ValueError, RecursionError):
            raise Internal(f"failed to parse {what}: {_reason(exc.msg)} at {exc.pos}") from None


def _reason(message: str) -> str:
    if "after document" in message:
        return "The document root must not be followed by other values."
    if "empty" in message:
        return "The document is empty."
    return "Invalid value."


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
    return value


def array(value: Json, key: str) -> list[Json]:
    """`value` as a list, or an error that names `key`."""
    if not isinstance(value, list):
        raise Internal(f"Unable to parse '{key}': attempt to access JSON non-array as array")
    return value


def unsigned(value: Json, key: str) -> int:
    """`value` as an integer of at least 0, or an error that names `key`."""
    if type(value) is not int or value < 0:
        raise Internal(
            f"Unable to parse '{key}': attempt to access JSON non-unsigned-integer as unsigned-integer"
        )
    return value


def boolean(value: Json, key: str) -> bool:
    """`value` as a boolean, or an error that names `key`."""
    if not isinstance(value, bool):
        raise Internal(f"Unable to parse '{key}': attempt to access JSON non-boolean as boolean")
    return value


_NUMBER_KINDS: dict[str, tuple[set[type], str]] = {
    "BOOL": ({bool}, "non-boolean as boolean"),
    "FP32": ({int, float}, "non-number as double"),
    "FP64": ({int, float}, "non-number as double"),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), ({int}, "non-signed-integer as signed-integer")),
    **dict.fromkeys(
        ("UINT8", "UINT16", "UINT32", "UINT64"), ({int}, "non-unsigned-integer as unsigned-integer")
    ),
}
_DTYPES = {
    "BOOL": np.bool_,
    "FP32": np.float64,
    "FP64": np.float64,
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), np.int64),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32", "UINT64"), np.uint64),
}


def tensor_from_data(name: str, datatype: str, shape: tuple[int, ...], data: Json) -> Tensor:
    """Make a tensor of the `data` of an input; only the flattened order counts, however it is nested.

    Raises:
        InvalidArg: the datatype cannot travel as JSON.
        Internal: an element is of another type, or there are not as many as the shape says.
    """
    if datatype in ("FP16", "BF16"):
        raise InvalidArg(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format "
            f"for input {name}"
        )
    flat: list[Json] = []
    _flatten(array(data, "data"), flat, 1)
    if len(flat) != math.prod(shape):
        raise Internal("Unable to parse 'data': Shape does not match true shape of 'data' field")
    if datatype == "BYTES":
        return _bytes_tensor(name, shape, flat)
    allowed, mismatch = _NUMBER_KINDS[datatype]
    error = Internal(f"Unable to parse 'data': attempt to access JSON {mismatch}")
    if not allowed.issuperset(map(type, flat)):
        raise error
    if datatype.startswith("UINT") and flat and min(flat) < 0:
        raise error
    try:
        elements: Array = np.array(flat, _DTYPES[datatype])
    except OverflowError:  # beyond 64 bits
        raise error from None
    wanted = DATATYPES[datatype].numpy
    if elements.dtype != wanted:
        with np.errstate(over="ignore"):
            elements = elements.astype(wanted)  # narrower integers wrap, as they do in Triton
    return Tensor.from_numpy(name, elements.reshape(shape), datatype)


def _flatten(data: list[Json], flat: list[Json], depth: int) -> None:
    if depth > _NESTING_LIMIT:
        raise InvalidArg(f"Unable to parse 'data': nested deeper than {_NESTING_LIMIT} levels")
    if list not in set(map(type, data)):
        flat.extend(data)
        return
    for element in data:
        if isinstance(element, list):
            _flatten(element, flat, depth + 1)
        else:
            flat.append(element)


def _bytes_tensor(name: str, shape: tuple[int, ...], flat: list[Json]) -> Tensor:
    elements = np.empty(len(flat), object)
    for index, element in enumerate(flat):
        if not isinstance(element, str):
            raise Internal("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
        elements[index] = element.encode("utf-8", "surrogatepass")
    return Tensor.from_numpy(name, elements.reshape(shape), "BYTES")


def data_json(tensor: Tensor) -> bytes:
    """The JSON array of a tensor's elements, flattened.

    Raises:
        InvalidArg: the datatype cannot travel as JSON.
    """
    if tensor.datatype in ("FP16", "BF16"):
        raise InvalidArg(
            f"sending {tensor.datatype} data via JSON is not supported. "
            f"Please use the binary data format for output"
        )
    elements = tensor.numpy().reshape(-1)
    if tensor.datatype == "BYTES":
        return _strings_json(elements)
    if tensor.datatype in ("FP32", "FP64"):
        elements = elements.astype(np.float64)  # FP32 prints with the digits of a double, as Triton's does
        if not np.isfinite(elements).all():
            return json.dumps(elements.tolist(), separators=(",", ":")).encode()
    return orjson.dumps(np.ascontiguousarray(elements), option=orjson.OPT_SERIALIZE_NUMPY)


def _strings_json(elements: Array) -> bytes:
    raw = [element if isinstance(element, bytes) else str(element).encode() for element in elements.tolist()]
    try:
        return orjson.dumps([element.decode() for element in raw])
    except UnicodeDecodeError:
        # Bytes that are not UTF-8 stand in the JSON string as they are.
        texts = [element.decode("utf-8", "surrogateescape") for element in raw]
        return json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")
