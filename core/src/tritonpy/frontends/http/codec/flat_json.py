"""The flat JSON of generate: its inputs as tensors, and a large text taken apart as `large_json` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.frontends.http.codec.json_body import Json, parse_json
from tritonpy.frontends.http.codec.json_data import BINARY_ONLY, binary_only, tensor_from_data
from tritonpy.frontends.http.codec.large_json import Outcome, ReadData, check_item_count
from tritonpy.tensor import Tensor

NESTED = "parameters"
"""The key of an object whose members count as if they stood outside."""

_KEPT = ("id", NESTED)  # which mean something even to a model with such an input

InputForms: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]
"""Datatype and dimensions of the inputs that a model has, by name; -1 may vary."""


def input_tensor(name: str, form: tuple[str, tuple[int, ...]], value: Json) -> Tensor:
    """Make an input of the value that stands beside its name.

    Raises:
        InvalidArg: the elements do not fill the input's shape, or its datatype cannot travel as JSON.
        Internal: an element is of another type.
    """
    datatype, dims = form
    if datatype in BINARY_ONLY:  # also without elements: an answer could not carry them either
        raise binary_only(name, datatype)
    elements = value if isinstance(value, list) else [value]
    if datatype == "BYTES" and not all(isinstance(element, str | list) for element in elements):
        raise Internal("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
    return tensor_from_data(name, datatype, _shape(name, dims, len(elements)), elements)


def _shape(name: str, dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape for a number of elements: the last variable dimension takes what the fixed ones leave."""
    shape = list(dims)
    for dim in shape:
        if dim != -1:
            if dim == 0 or count % dim:
                raise _misshapen(name)
            count //= dim
    for index in reversed(range(len(shape))):
        if shape[index] == -1:
            shape[index] = count
            count = 1
    if count != 1:
        raise _misshapen(name)
    return tuple(shape)


def _misshapen(name: str) -> InvalidArg:
    return InvalidArg(f"The schema can not convert input '{name}' to tensor with proper shape")


@dataclass(frozen=True, slots=True)
class FlatParts:
    """A document in two.

    Attributes:
        rest: the document, with nothing where inputs were; None of one that is no object.
        inputs: whether it stood among the parameters, its name, and what became of it.
    """

    rest: Json
    inputs: list[tuple[bool, str, Outcome]]


def take_apart_flat(text: bytes | memoryview, forms: InputForms) -> FlatParts:
    """Read the JSON of a generate request.

    Raises:
        TritonError: it is not JSON, or has more members than anybody would give it.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        return FlatParts(None, [])
    inputs: list[tuple[bool, str, Outcome]] = []
    nested = document.get(NESTED)
    for is_nested, members in ((False, document), (True, nested if isinstance(nested, dict) else {})):
        for name in [name for name in members if name in forms and name not in _KEPT]:
            inputs.append((is_nested, name, _read(name, forms[name], members[name])))
            members[name] = None
    check_item_count(document, len(text))
    return FlatParts(document, inputs)


def _read(name: str, form: tuple[str, tuple[int, ...]], value: Json) -> Outcome:
    try:
        return input_tensor(name, form, value)
    except TritonError as error:
        return error


def put_together_flat(parts: FlatParts) -> Json:
    """The document, with `ReadData` for its inputs."""
    for is_nested, name, outcome in parts.inputs:
        members = parts.rest[NESTED] if is_nested else parts.rest
        members[name] = ReadData(outcome)
    return parts.rest
