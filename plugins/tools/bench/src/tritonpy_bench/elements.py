"""Elements of tensors, from JSON to the protocol's binary form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
from tritonpy.errors import TritonError
from tritonpy.tensor import Array, Tensor

from tritonpy_bench.errors import BenchError
from tritonpy_bench.target import TensorFacts


def wire_of(entry: TensorFacts, elements: Sequence[object], where: str) -> bytes:
    """Elements of JSON in the protocol's binary form.

    Args:
        entry: the input or output.
        elements: in row-major order.
        where: they stand, for errors.

    Raises:
        BenchError: they are not of its datatype.
    """
    from tritonpy.cli.tensor_input import WantedInput, build_input

    if entry.datatype == "BYTES":
        return packed([text.encode() if isinstance(text, str) else str(text).encode() for text in elements])
    try:
        flat_input = build_input(
            WantedInput(entry.name, entry.datatype, (len(elements),)), json.dumps(elements)
        )
    except (TritonError, ValueError, TypeError) as error:
        raise BenchError(f"{where}: {error}") from None
    return bytes(flat_input.wire())


def flat(value: object) -> Iterator[object]:
    """The elements of lists in lists, in row-major order; what is no list is one element."""
    if not isinstance(value, list):
        yield value
        return
    for element in value:
        yield from flat(element)


def packed(texts: Sequence[bytes]) -> bytes:
    """Elements of BYTES, each with its length before it."""
    array: Array = np.empty(len(texts), object)
    array[:] = texts
    return bytes(Tensor.from_numpy("", array).wire())
