"""What responses hold: outputs, how many elements they have, and whether these are what was expected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

from tritonpy.errors import TritonError
from tritonpy.tensor import Tensor

from tritonpy_bench.elements import flat, packed, wire_of
from tritonpy_bench.errors import BenchError
from tritonpy_bench.target import TensorFacts

_MOST_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a response.

    Attributes:
        element_count: how many it has.
        wire: gives them in the protocol's binary form; None where they lie elsewhere.
    """

    element_count: int
    wire: Callable[[], bytes | None]


Outputs: TypeAlias = Mapping[str, Output]
"""The outputs of a response, by name."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an output has to be.

    Attributes:
        name, datatype: of the output.
        wire: its elements in the protocol's binary form.
        where: the step of the input data that says so.
    """

    name: str
    datatype: str
    wire: bytes
    where: str

    def difference(self, outputs: Outputs) -> str | None:
        """How a response differs; None if it does not."""
        output = outputs.get(self.name)
        if output is None:
            return f"{self.where}: output '{self.name}' is missing"
        wire = output.wire()
        if wire == self.wire:
            return None
        if wire is None:
            return f"{self.where}: output '{self.name}' is not in the response"
        return f"{self.where}: output '{self.name}' {self._unlike(wire)}"

    def _unlike(self, wire: bytes) -> str:
        try:
            got, wanted = _elements(self.datatype, wire), _elements(self.datatype, self.wire)
        except (ValueError, TritonError):  # what came is of another datatype than the metadata says
            return f"has {len(wire)} bytes, expected {len(self.wire)} of {self.datatype}"
        if not got and not wanted:  # bytes that are no element
            return f"has {len(wire)} bytes, expected {len(self.wire)} of {self.datatype}"
        if len(got) != len(wanted):
            return f"has {len(got)} elements, expected {len(wanted)}"
        # Elements may be equal where bytes are not, as 0.0 and -0.0 are.
        index = next((i for i, each in enumerate(got) if repr(each) != repr(wanted[i])), 0)
        return f"differs: element {index} is {_shown(got[index])}, expected {_shown(wanted[index])}"


def _elements(datatype: str, wire: bytes) -> Sequence[object]:
    if datatype != "BYTES":
        return Tensor("", datatype, (-1,), wire).numpy().reshape(-1).tolist()
    elements, position = [], 0
    while position + 4 <= len(wire):
        end = position + 4 + int.from_bytes(wire[position : position + 4], "little")
        elements.append(wire[position + 4 : end])
        position = end
    return elements


def _shown(element: object) -> str:
    text = repr(element)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads responses.

    Attributes:
        outputs: of the model, by name; JSON does not tell datatypes.
        is_generate: they are flat JSON objects.
    """

    outputs: Mapping[str, TensorFacts]
    is_generate: bool = False

    def infer(self, body: bytes, head_byte_size: int | None) -> Outputs:
        """The outputs of an answer over HTTP.

        Args:
            body: of the answer.
            head_byte_size: of the JSON at its beginning; None if it is all.

        Raises:
            ValueError: it is none.
        """
        end = len(body) if head_byte_size is None else head_byte_size
        found, position = {}, end
        for entry in json.loads(body[:end])["outputs"]:
            size = entry.get("parameters", {}).get("binary_data_size")
            if size is not None:
                wire = body[position : position + size]
                position += size
                found[entry["name"]] = Output(prod(entry["shape"]), partial(_same, wire))
            elif "data" in entry:
                found[entry["name"]] = self._of_json(entry["name"], entry["data"])
            else:
                found[entry["name"]] = Output(prod(entry["shape"]), partial(_same, None))
        return found

    def generated(self, text: bytes) -> Outputs:
        """The outputs of an answer, or an event, of a generate endpoint.

        Raises:
            ValueError: it is none.
        """
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        return {name: self._of_json(name, document[name]) for name in self.outputs if name in document}

    def _of_json(self, name: str, value: object) -> Output:
        elements = [*flat(value)]
        facts = self.outputs.get(name)

        read = partial(_wire, facts, elements) if facts is not None else partial(_same, None)
        return Output(len(elements), read)


def _same(wire: bytes | None) -> bytes | None:
    return wire


def called(response: Any) -> Outputs:  # Any: a message `ModelInferResponse`
    """The outputs of a response of gRPC."""
    raw = response.raw_output_contents
    found = {}
    for index, entry in enumerate(response.outputs):
        if index < len(raw):
            found[entry.name] = Output(prod(entry.shape), partial(_same, raw[index]))
        else:
            found[entry.name] = Output(prod(entry.shape), partial(_typed, entry))
    return found


def _typed(entry: Any) -> bytes | None:  # Any: a message `InferOutputTensor`
    """Elements that stand in the fields of their type."""
    for field, elements in entry.contents.ListFields():
        if field.name == "bytes_contents":
            return packed(elements)
        facts = TensorFacts(entry.name, entry.datatype, tuple(entry.shape))
        return _wire(facts, list(elements))
    return None


def _wire(facts: TensorFacts, elements: Sequence[object]) -> bytes | None:
    """Elements in the protocol's binary form; None if they are not of their datatype."""
    try:
        return wire_of(facts, elements, "response")
    except (BenchError, KeyError):  # also of a datatype that nobody knows
        return None
