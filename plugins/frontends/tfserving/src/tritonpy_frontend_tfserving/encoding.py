"""Answers to `:predict` requests: outputs as nested lists of JSON, by rows or by columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from tritonpy.plugin import Array, InvalidArg

Json = Any  # Any: what is written as JSON

_BYTES_SUFFIX = "_bytes"


def encode(outputs: Mapping[str, Array], is_rows: bool) -> bytes:
    """The body of an answer; an output that is alone goes without its name.

    Numbers that are not finite are written as NaN, Infinity and -Infinity.

    Args:
        outputs: by name; strings as objects.
        is_rows: in the form of the request.

    Raises:
        InvalidArg: the outputs cannot be written as rows, because they have not as many.
    """
    document = {"predictions": _rows(outputs)} if is_rows else {"outputs": _columns(outputs)}
    if all(array.dtype.kind != "f" or np.isfinite(array).all() for array in outputs.values()):
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(document, default=_plain).encode()


def _columns(outputs: Mapping[str, Array]) -> Json:
    columns = {name: _values(name, array) for name, array in outputs.items()}
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _rows(outputs: Mapping[str, Array]) -> Json:
    count = -1
    for name, array in outputs.items():
        if not array.ndim:
            raise InvalidArg(f"Tensor name: {name} has no shape information; ask by 'inputs'")
        if count not in (-1, len(array)):
            raise InvalidArg(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {count}; ask by "
                "'inputs'"
            )
        count = len(array)
    columns = {name: _values(name, array) for name, array in outputs.items()}
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(name: str, array: Array) -> Json:
    """An array of numbers that the encoder takes as it is, or nested lists of strings."""
    if array.dtype != object:
        # numpy has several types for the integers of one size, of which the encoder knows one.
        array = array.astype(np.float32) if array.dtype == np.float16 else array.view(array.dtype.name)
        return np.ascontiguousarray(array) if array.ndim else array[()]
    return _texts(array.tolist(), name.endswith(_BYTES_SUFFIX))


def _texts(value: Json, is_bytes: bool) -> Json:
    if isinstance(value, list):
        return [_texts(each, is_bytes) for each in value]
    if not is_bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass  # JSON has no other text
    return {"b64": base64.b64encode(value).decode()}


def _plain(value: Json) -> Json:
    return value.tolist()
