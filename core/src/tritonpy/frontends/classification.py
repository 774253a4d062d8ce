"""The classification extension: of an output only its largest elements, with what they stand for."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tritonpy.errors import InvalidArg
from tritonpy.tensor import Array, Tensor

MOST_CLASSES = 1_000_000
"""How many elements an output, or each row of a batch, may have for the largest to be looked for."""
MOST_ANSWERED = 131_072
"""How many of the largest elements one output may be answered with, all rows together: they are written where
everybody else waits."""

_DATATYPES = frozenset(
    ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64")
)
_FLOATS = ("FP32", "FP64")
_LENGTH = struct.Struct("<I")


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
        InvalidArg: the output is not of numbers that can be ordered, has too many elements, or too many of
            them are wanted.
    """
    if tensor.datatype not in _DATATYPES:
        raise InvalidArg(f"class result not available for output due to unsupported type '{tensor.datatype}'")
    elements = tensor.numpy()
    has_batch = classes.has_batch and elements.ndim > 0
    rows = elements.shape[0] if has_batch else 1
    per_row = elements.size // rows if rows else 0
    if per_row > MOST_CLASSES:
        raise InvalidArg(
            f"classification output tensor too large: output '{tensor.name}' has {per_row} elements, "
            f"expected at most {MOST_CLASSES}"
        )
    kept = min(count, per_row)
    if rows * kept > MOST_ANSWERED:
        raise InvalidArg(
            f"class result not available for output '{tensor.name}': {rows * kept} classes are wanted, "
            f"expected at most {MOST_ANSWERED}"
        )
    table = elements.reshape(rows, per_row)
    form = b"%.6f:%d" if tensor.datatype in _FLOATS else b"%d:%d"
    labels = classes.labels
    parts: list[bytes] = []
    for row in table:
        largest = _largest(row, kept)
        for value, index in zip(row[largest].tolist(), largest.tolist(), strict=True):
            string = form % (value, index)
            if index < len(labels) and labels[index]:
                string = b"%b:%b" % (string, labels[index])
            parts += (_LENGTH.pack(len(string)), string)
    shape = (rows, kept) if has_batch else (kept,)
    return Tensor(tensor.name, "BYTES", shape, b"".join(parts))


def _largest(row: Array, count: int) -> Array:
    """The indices of the `count` largest elements, largest first, equal ones in their order."""
    if count == 0:
        return np.empty(0, np.intp)
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
            return candidates[order]
    return np.argsort(keys, kind="stable")[:count]
