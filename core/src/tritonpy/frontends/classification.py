"""The classification extension: of an output only its largest elements, with what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tritonpy.errors import InvalidArg
from tritonpy.tensor import Array, Tensor

MOST_CLASSES = 1_000_000
"""How many elements an output, or each row of a batch, may have for the largest to be looked for."""

_DATATYPES = frozenset(
    ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64")
)
_FLOATS = ("FP32", "FP64")


@dataclass(frozen=True, slots=True)
class OutputClasses:
    """What the elements of a model's output stand for.

    Attributes:
        labels: by index; empty for none. There may be fewer than elements.
        has_batch: the output's first dimension is the batch; each row has its own largest elements.
    """

    labels: Sequence[bytes] = ()
    has_batch: bool = False


def top_classes(tensor: Tensor, count: int, classes: OutputClasses) -> Tensor:
    """The largest elements of an output, as strings `<value>:<index>` or `<value>:<index>:<label>`.

    Equal elements keep their order, and what is no number comes last.

    Args:
        tensor: the output.
        count: how many are wanted; fewer are given when there are fewer.
        classes: what they stand for.

    Returns:
        A BYTES tensor with at most `count` elements, or a row of them for each of the output's.

    Raises:
        InvalidArg: the output is not of numbers that can be ordered, or has too many elements.
    """
    if tensor.datatype not in _DATATYPES:
        raise InvalidArg(f"class result not available for output due to unsupported type '{tensor.datatype}'")
    elements = tensor.numpy()
    has_batch = classes.has_batch and elements.ndim > 0
    rows = elements.shape[0] if has_batch else 1
    per_row = elements.size // rows if rows else 0
    if per_row > MOST_CLASSES:
        raise InvalidArg(
            f"class result not available for output '{tensor.name}': it has {per_row} elements, expected at "
            f"most {MOST_CLASSES}"
        )
    kept = min(count, per_row)
    table = elements.reshape(rows, per_row)
    write = _write_float if tensor.datatype in _FLOATS else str
    strings = np.empty(rows * kept, object)
    strings[:] = [
        _described(write(value), index, classes.labels)
        for row in table
        for index in _largest(row, kept)
        for value in (row[index].item(),)
    ]
    shape = (rows, kept) if has_batch else (kept,)
    return Tensor.from_numpy(tensor.name, strings.reshape(shape), "BYTES")


def _largest(row: Array, count: int) -> list[int]:
    """The indices of the `count` largest elements, largest first, equal ones in their order."""
    if count == 0:
        return []
    if row.dtype.kind == "f":
        keys = -row
    elif row.dtype.kind == "u":
        keys = np.iinfo(row.dtype).max - row
    else:
        keys = ~row  # the negative of the smallest integer does not fit, the complement does
    if count < row.size:
        # Only what is at least as large as the last wanted one has to be put in order; NaN is smallest.
        bound = np.partition(keys, count - 1)[count - 1]
        if bound == bound:
            candidates = np.flatnonzero(keys <= bound)
            order = np.argsort(keys[candidates], kind="stable")[:count]
            return candidates[order].tolist()  # type: ignore[no-any-return]
    return np.argsort(keys, kind="stable")[:count].tolist()  # type: ignore[no-any-return]


def _write_float(value: float) -> str:
    return f"{value:.6f}"


def _described(value: str, index: int, labels: Sequence[bytes]) -> bytes:
    described = f"{value}:{index}".encode()
    if index < len(labels) and labels[index]:
        return b"%b:%b" % (described, labels[index])
    return described
