"""Tensors of a `:predict` request: nested lists of JSON, by rows or by columns."""

from __future__ import annotations

import base64
import binascii
import json
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from tritonpy.plugin import DATATYPES, Array, InvalidArg, TensorSpec, Unsupported

from tritonpy_frontend_tfserving.models import fit_rank

Json = Any  # Any: what a client has sent
Specs = Mapping[str, TensorSpec]

_KINDS: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {float, int}}
_SHORT = reprlib.Repr()  # errors show no more of a value
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 4, 4, 40


def parse(body: bytes) -> dict[str, Json]:
    """Parse a body, which may have the numbers NaN, Infinity and -Infinity.

    Raises:
        InvalidArg: it is not JSON, or no object.
    """
    if not body:
        raise InvalidArg("JSON Parse error: The document is empty")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise InvalidArg(f"JSON Parse error: {exc}") from exc
    if not isinstance(document, dict):
        raise InvalidArg(f"JSON Value: {_shown(document)} Is not object")
    return document


def read_inputs(document: Mapping[str, Json], specs: Specs) -> tuple[dict[str, Array], bool]:
    """The inputs of a request, and True if they came as rows.

    Raises:
        InvalidArg: they are in neither form, or do not fit the model's inputs.
        Unsupported: an input is of a type for which JSON has no numbers.
    """
    if ("instances" in document) == ("inputs" in document):
        if "inputs" in document:
            raise InvalidArg("expecting only one of 'inputs' or 'instances' keys to exist")
        raise InvalidArg("Missing 'inputs' or 'instances' key")
    if "instances" in document:
        return _of_rows(document["instances"], specs), True
    return _of_columns(document["inputs"], specs), False


def _of_rows(rows: Json, specs: Specs) -> dict[str, Array]:
    if not isinstance(rows, list):
        raise InvalidArg(f"JSON Value: {_shown(rows)} Expecting 'instances' to be a list/array")
    if not rows:
        raise InvalidArg("No values in 'instances' array")
    if not _is_named(rows[0]):
        if len(specs) > 1:
            raise InvalidArg(
                "instances is a plain list, but expecting list of objects as multiple input tensors "
                f"required: {', '.join(specs)}"
            )
        for index, row in enumerate(rows):
            if _is_named(row):
                raise InvalidArg(f"Expecting value/list but got object at item {index} of input list")
        (spec,) = specs.values()
        return {spec.name: _array(rows, spec)}
    names = set(rows[0])
    if not {name for name, spec in specs.items() if not spec.optional} <= names <= specs.keys():
        raise InvalidArg(
            f"Failed to process element: 0 of 'instances' list. JSON object: {_shown(rows[0])} keys must be "
            f"equal to: {','.join(specs)}"
        )
    for index, row in enumerate(rows):
        if not _is_named(row):
            raise InvalidArg(f"Expecting object but got {_shown(row)} at item {index} of input list")
        if row.keys() != names:
            raise InvalidArg(
                f"Failed to process element: {index} of 'instances' list. JSON object: {_shown(row)} keys "
                f"must be equal to: {','.join(sorted(names))}"
            )
    return {name: _array([row[name] for row in rows], specs[name]) for name in rows[0]}


def _of_columns(inputs: Json, specs: Specs) -> dict[str, Array]:
    if not _is_named(inputs):
        if len(specs) > 1:
            raise InvalidArg(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required: "
                f"{', '.join(specs)}"
            )
        (spec,) = specs.values()
        return {spec.name: _array(inputs, spec)}
    for name, spec in specs.items():
        if name not in inputs and not spec.optional:
            raise InvalidArg(f"Missing named input: {name} in 'inputs' object.")
    return {name: _array(inputs[name], spec) for name, spec in specs.items() if name in inputs}


def _is_named(value: Json) -> bool:
    """True for an object of tensors; False for a value, as which an object with base64 counts."""
    return isinstance(value, dict) and not (value.keys() == {"b64"} and isinstance(value["b64"], str))


def _array(value: Json, spec: TensorSpec) -> Array:
    return fit_rank(_strings(value, spec) if spec.datatype == "BYTES" else _numbers(value, spec), spec)


def _numbers(value: Json, spec: TensorSpec) -> Array:
    if spec.datatype == "BF16":
        raise Unsupported(f"input '{spec.name}': Conversion of JSON Value to type: BF16")
    wanted = DATATYPES[spec.datatype].numpy
    found = np.array(value, object)  # not as numbers: long strings among many would take any amount of memory
    elements = found.reshape(-1).tolist()
    kinds = set(map(type, elements))
    if list in kinds:
        raise InvalidArg(f"input '{spec.name}': lists that are side by side differ in size: {_shown(value)}")
    if not kinds <= _KINDS[wanted.kind]:
        raise InvalidArg(
            f"input '{spec.name}': JSON Value: {_shown(value)} is not of expected type: {wanted.name}"
        )
    if wanted.kind in "iu" and elements:
        limits = np.iinfo(wanted.name)
        if min(elements) < limits.min or max(elements) > limits.max:
            raise InvalidArg(
                f"input '{spec.name}': JSON Value: {_shown(value)} is not of expected type: {wanted.name}, "
                f"which goes from {limits.min} to {limits.max}"
            )
    try:
        with np.errstate(over="ignore"):
            array = found.astype(wanted)
            is_lossy = wanted.kind == "f" and (np.isinf(array) & np.isfinite(found.astype("f8"))).any()
    except OverflowError:  # a whole number that no float holds
        is_lossy = True
    if is_lossy:
        raise InvalidArg(
            f"input '{spec.name}': Cannot convert JSON value: {_shown(value)} to {wanted.name} without loss "
            "of precision."
        )
    return array


def _strings(value: Json, spec: TensorSpec) -> Array:
    elements: list[bytes] = []
    shape = _collect(value, elements, spec)
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def _collect(value: Json, elements: list[bytes], spec: TensorSpec, level: int = 0) -> tuple[int, ...]:
    """Append the strings in nested lists, and return the shape."""
    if isinstance(value, str):
        elements.append(value.encode("utf-8", "surrogatepass"))
        return ()
    if isinstance(value, dict):
        elements.append(_from_base64(value, spec))
        return ()
    if not isinstance(value, list) or level >= len(spec.shape):
        raise InvalidArg(f"input '{spec.name}': JSON Value: {_shown(value)} is not of expected type: string")
    shapes = {_collect(each, elements, spec, level + 1) for each in value}
    if len(shapes) > 1:
        raise InvalidArg(f"input '{spec.name}': lists that are side by side differ in size: {_shown(value)}")
    return (len(value), *next(iter(shapes), ()))


def _from_base64(value: dict[str, Json], spec: TensorSpec) -> bytes:
    text = value.get("b64")
    if len(value) != 1 or not isinstance(text, str):
        raise InvalidArg(
            f"input '{spec.name}': JSON Value: {_shown(value)} not formatted correctly for base64 data"
        )
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise InvalidArg(f"input '{spec.name}': Unable to base64 decode: {exc}") from exc


def _shown(value: Json) -> str:
    return _SHORT.repr(value)
