"""A tensor's elements as JSON: the `data` of an input, and of an output."""

from __future__ import annotations

import math
import re
from contextlib import suppress

import numpy as np
import orjson

from tritonpy.buffers import byte_view
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.http.codec.json_body import Json, array
from tritonpy.frontends.http.codec.json_scanner import too_deep
from tritonpy.tensor import Array, Tensor, pack_bytes

NESTING_LIMIT = 100
"""The depth to which the `data` of an input may be nested."""

BINARY_ONLY = frozenset({"FP16", "BF16"})
"""Datatypes that JSON does not carry."""

_MISMATCHES = {
    "BOOL": "non-boolean as boolean",
    **dict.fromkeys(("FP32", "FP64"), "non-number as double"),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), "non-signed-integer as signed-integer"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32", "UINT64"), "non-unsigned-integer as unsigned-integer"),
}
_KINDS: dict[str, set[type]] = {
    name: {bool} if name == "BOOL" else {int, float} if name in ("FP32", "FP64") else {int}
    for name in _MISMATCHES
}

_LIMITS = {
    f"{sign}INT{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}


def tensor_from_data(name: str, datatype: str, shape: tuple[int, ...], data: Json) -> Tensor:
    """Make a tensor of the `data` of an input; only the flattened order counts, however it is nested.

    Whether BYTES are as many as the shape says is left to the check against the model.

    Raises:
        InvalidArg: the datatype cannot travel as JSON, or an integer does not fit into it.
        Internal: an element is of another type, or there are not as many as the shape says.
    """
    flat, found = _flattened(array(data, "data"))
    if datatype == "BYTES":
        if not found.issubset({str}):
            raise Internal("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
        return _bytes_tensor(name, shape, flat)
    count = math.prod(shape)
    if datatype in BINARY_ONLY:
        if count or flat:
            raise binary_only(name, datatype)
        return Tensor(name, datatype, shape, b"")
    kinds = _KINDS[datatype]
    if len(flat) != count:
        if not kinds.issuperset(map(type, flat[:count])):  # what comes first is what Triton complains about
            raise _mismatch(datatype)
        with suppress(InvalidArg):  # what does not fit is our complaint, and comes last
            _elements(name, datatype, flat[:count])
        raise Internal("Unable to parse 'data': Shape does not match true shape of 'data' field")
    if not found.issubset(kinds):
        raise _mismatch(datatype)
    return Tensor(name, datatype, shape, byte_view(_elements(name, datatype, flat)))


def binary_only(name: str, datatype: str) -> InvalidArg:
    """The refusal of an input of a datatype that JSON does not carry."""
    return InvalidArg(
        f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input "
        f"{name}"
    )


def _elements(name: str, datatype: str, flat: list[Json]) -> Array:
    wanted = DATATYPES[datatype].numpy
    if datatype in ("FP32", "FP64"):
        with np.errstate(over="ignore"):  # beyond the largest one is infinity
            return np.fromiter(flat, wanted, len(flat))
    if datatype != "BOOL" and flat:
        low, high = _LIMITS[datatype]
        smallest, largest = min(flat), max(flat)
        if smallest < low or largest > high:
            lowest, highest = (0, 2**64 - 1) if low == 0 else (-(2**63), 2**63 - 1)
            if smallest < lowest or largest > highest:
                raise _mismatch(datatype)
            wrong = smallest if smallest < low else largest
            raise InvalidArg(
                f"Unable to parse 'data': {wrong} in input '{name}' does not fit into {datatype}, "
                f"which holds {low} to {high}"
            )
    return np.fromiter(flat, wanted, len(flat))


def _mismatch(datatype: str) -> Internal:
    return Internal(f"Unable to parse 'data': attempt to access JSON {_MISMATCHES[datatype]}")


def _flattened(data: list[Json]) -> tuple[list[Json], set[type]]:
    """The elements of however nested lists, and of which types they are."""
    kinds = set(map(type, data))
    if list not in kinds:
        return data, kinds
    flat: list[Json] = []
    found: set[type] = set()
    _flatten(data, flat, found, 1)
    return flat, found


def _flatten(data: list[Json], flat: list[Json], found: set[type], depth: int) -> None:
    if depth > NESTING_LIMIT:
        raise InvalidArg(f"Unable to parse 'data': {too_deep(NESTING_LIMIT)}")
    kinds = set(map(type, data))
    if list not in kinds:
        flat.extend(data)
        found |= kinds
        return
    for element in data:
        if type(element) is list:
            _flatten(element, flat, found, depth + 1)
        else:
            flat.append(element)
            found.add(type(element))


def _bytes_tensor(name: str, shape: tuple[int, ...], flat: list[Json]) -> Tensor:
    elements = np.empty(len(flat), object)
    elements[:] = [element.encode() if element.isascii() else _encoded(element) for element in flat]
    return Tensor(name, "BYTES", shape, pack_bytes(elements))


def _encoded(element: str) -> bytes:
    try:
        return element.encode()
    except UnicodeEncodeError:
        pass
    try:
        return element.encode("utf-8", "surrogateescape")  # bytes that were no UTF-8, as they came
    except UnicodeEncodeError:
        return element.encode("utf-8", "surrogatepass")  # half of a pair, written as an escape


def data_json(tensor: Tensor) -> bytes:
    """The JSON array of a tensor's elements, flattened.

    Raises:
        InvalidArg: the datatype cannot travel as JSON.
    """
    if tensor.datatype in BINARY_ONLY:
        raise InvalidArg(
            f"sending {tensor.datatype} data via JSON is not supported. "
            f"Please use the binary data format for output"
        )
    elements = tensor.numpy().reshape(-1)
    if tensor.datatype == "BYTES":
        return _strings_json(elements)
    if tensor.datatype in ("FP32", "FP64"):
        return _numbers_json(elements.astype(np.float64))  # an FP32 prints with the digits of a double
    return orjson.dumps(np.ascontiguousarray(elements), option=orjson.OPT_SERIALIZE_NUMPY)


_EXPONENT = re.compile(rb"e(\+[0-9]+|-6(?![0-9]))")


def _numbers_json(elements: Array) -> bytes:
    """Numbers as Triton writes them: with an exponent from 1e21 on and below 1e-6."""
    text = orjson.dumps(elements, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"e+" in text or b"e-6" in text:
        text = _respelled(text)
    if b"n" in text:  # null stands for what is no number
        names = [_special_name(value) for value in elements[~np.isfinite(elements)].tolist()]
        pieces = zip(text.split(b"null"), [*names, b""], strict=True)
        text = b"".join([part for pair in pieces for part in pair])
    return text


def _special_name(value: float) -> bytes:
    if value != value:
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"


def _respelled(text: bytes) -> bytes:
    """The array with the numbers written otherwise that Triton writes otherwise."""
    pieces: list[bytes] = []
    kept = 0
    for match in _EXPONENT.finditer(text):
        begin = text.rfind(b",", kept, match.start()) + 1 or max(kept, 1)  # behind the bracket
        lead, _, fraction = text[begin : match.start()].partition(b".")
        exponent = int(match[1])
        if exponent < 0:
            sign, digit = lead[:-1], lead[-1:]
            spelled = sign + b"0." + b"0" * (-exponent - 1) + digit + fraction
        elif exponent <= 20:
            spelled = lead + fraction.ljust(exponent, b"0") + b".0"
        else:
            spelled = lead + (b"." + fraction if fraction else b"") + b"e%d" % exponent
        pieces += (text[kept:begin], spelled)
        kept = match.end()
    return b"".join([*pieces, text[kept:]])


def _strings_json(elements: Array) -> bytes:
    raw = [element if isinstance(element, bytes) else str(element).encode() for element in elements.tolist()]
    try:
        return orjson.dumps([element.decode() for element in raw])
    except UnicodeDecodeError:
        return b"[" + b",".join(map(_string_json, raw)) + b"]"


def _string_json(element: bytes) -> bytes:
    """One string; bytes that are not UTF-8 stand in it as they are."""
    try:
        return orjson.dumps(element.decode())
    except UnicodeDecodeError:
        return b'"' + _ESCAPED.sub(_escape, element) + b'"'


_ESCAPED = re.compile(rb'["\\\x00-\x1f]')


def _escape(match: re.Match[bytes]) -> bytes:
    return orjson.dumps(match[0].decode())[1:-1]
