"""Large JSON taken apart: the expensive part is done here, in any process, and a small document is left.

Of a request the costly parts are the text itself and the `data` of its inputs. Both are read by `take_apart`,
whose result is the document without them; `put_together` gives the document that is read further as if it had
come whole, so every check, and every error in its turn, is the same for small and large bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.frontends.http.codec.json_body import Json, array, parse_json
from tritonpy.frontends.http.codec.json_data import data_json, tensor_from_data
from tritonpy.tensor import Tensor

LARGE = 1024 * 1024
"""JSON above this many bytes is read and written elsewhere than on the loop."""

_MOST_ITEMS = 65_536
_KEPT = ("id", "parameters", "inputs", "outputs")
_KEPT_OF_INPUT = ("name", "datatype", "shape", "parameters")

Outcome: TypeAlias = Tensor | TritonError
"""The result of reading the `data` of an input."""


@dataclass(frozen=True, slots=True)
class ReadData:
    """Stands in a document for the `data` of an input that has been read already.

    Attributes:
        outcome: None when it is not known what it is data of, which is refused before it is asked for.
    """

    outcome: Outcome | None

    def tensor(self) -> Tensor:
        """The tensor.

        Raises:
            TritonError: the data was wrong.
        """
        assert self.outcome is not None  # data with a datatype and a shape has been read
        if isinstance(self.outcome, TritonError):
            raise self.outcome
        return self.outcome


@dataclass(frozen=True, slots=True)
class Parts:
    """A document in two.

    Attributes:
        rest: what is left when the data of inputs and unknown members are taken out; None of a document
            that is no object.
        data: of which inputs, by their index, and what became of it.
    """

    rest: Json
    data: list[tuple[int, Outcome | None]]


def take_apart(text: bytes | memoryview) -> Parts:
    """Read the JSON of an inference request.

    Raises:
        TritonError: it is not JSON, or names more things than anybody would.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        return Parts(None, [])
    rest = {key: document[key] for key in _KEPT if key in document}
    inputs = rest.get("inputs")
    data: list[tuple[int, Outcome | None]] = []
    if isinstance(inputs, list):
        rest["inputs"] = kept = []
        for index, item in enumerate(inputs):
            if isinstance(item, dict):
                if "data" in item:
                    data.append((index, _read(item)))
                item = {key: item[key] for key in _KEPT_OF_INPUT if key in item}
            kept.append(item)
    check_item_count(rest, len(text))
    return Parts(rest, data)


def check_item_count(rest: Json, byte_size: int) -> None:
    """Refuse what would keep the loop busy although its tensors are taken out.

    Raises:
        InvalidArg: what is left of the text has too many members and elements.
    """
    if _count_items(rest) > _MOST_ITEMS:
        raise InvalidArg(
            f"a request of {byte_size} bytes names more than {_MOST_ITEMS} inputs, outputs, dimensions and "
            f"parameters, the most that one of over {LARGE} bytes may"
        )


def put_together(parts: Parts) -> Json:
    """The document, with `ReadData` for the data of its inputs."""
    for index, outcome in parts.data:
        parts.rest["inputs"][index]["data"] = ReadData(outcome)
    return parts.rest


def write_data(tensors: Sequence[Tensor]) -> list[bytes]:
    """The elements of each tensor as a JSON array.

    Raises:
        InvalidArg: a datatype cannot travel as JSON.
    """
    return [data_json(tensor) for tensor in tensors]


def json_byte_size(tensor: Tensor) -> int:
    """About how large the elements of a tensor are as JSON."""
    if tensor.datatype == "BYTES":
        return tensor.byte_size
    return tensor.element_count * _JSON_SIZES[tensor.datatype]


_JSON_SIZES = {  # of an element with its comma
    name: 20 if name.startswith(("FP", "BF")) else 4 if kind.byte_size == 1 else 3 * kind.byte_size
    for name, kind in DATATYPES.items()
}


def _read(item: Json) -> Outcome | None:
    name, datatype, shape = (item.get(key) for key in ("name", "datatype", "shape"))
    if not (isinstance(name, str) and isinstance(datatype, str)):
        return None
    if not (isinstance(shape, list) and all(type(dim) is int and dim >= 0 for dim in shape)):
        return None
    try:
        if datatype not in DATATYPES:
            array(item["data"], "data")
            return None
        return tensor_from_data(name, datatype, tuple(shape), item["data"])
    except TritonError as error:
        return error


def _count_items(document: Json) -> int:
    """The number of values in a document; counting stops where there are too many."""
    count = 0
    left = [document]
    while left and count <= _MOST_ITEMS:
        value = left.pop()
        if isinstance(value, dict | list):
            count += len(value)
            left.extend(value.values() if isinstance(value, dict) else value)
    return count
