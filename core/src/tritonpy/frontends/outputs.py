"""Outputs of which a client wants something else than their bytes: classes, or to have them in shared memory.

Most requests want nothing of the kind, and cost one look at an empty mapping.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tritonpy.dataplane import ServedModel
from tritonpy.errors import InvalidArg
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tensor import Array, Tensor

MOST_CLASSES = 1_000_000
"""Most elements of an output, or of each row of a batch, among which the largest are looked for."""
MOST_ANSWERED = 131_072
"""Most elements that classify one output, all rows together: they are written on the loop, where other
requests wait."""

_DATATYPES = frozenset(
    ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64")
)
_FLOATS = ("FP32", "FP64")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class OutputClasses:
    """The classes that the elements of a model's output stand for.

    Attributes:
        labels: by index; empty for none. There may be fewer than elements.
        has_batch: the output's first dimension is the batch; each row has its own largest elements.
    """

    labels: Sequence[bytes] = ()
    has_batch: bool = False


_UNKNOWN = OutputClasses()


@dataclass(frozen=True, slots=True)
class Placed:
    """The output's bytes go into a region of shared memory, and not into the response.

    Attributes:
        target: where.
    """

    target: RegionSlice


@dataclass(frozen=True, slots=True)
class Classified:
    """Only the largest elements travel: the classification extension.

    Attributes:
        count: how many, at least 1.
        classes: what the elements stand for; `of_model` fills it in.
    """

    count: int
    classes: OutputClasses = _UNKNOWN


Treatments: TypeAlias = Mapping[str, Placed | Classified]
"""By output; those it does not name travel as they are."""

UNTREATED: Treatments = {}


class References:
    """The regions of shared memory that a request may name, and how much its JSON may become.

    Args:
        regions: those that clients have registered.
        most_json_bytes: the largest tensor that may be made of JSON.
    """

    def __init__(self, regions: SharedMemoryRegions, most_json_bytes: int = sys.maxsize) -> None:
        self.regions = regions
        self.most_json_bytes = most_json_bytes

    def placed(self, region: str, byte_size: int, offset: int) -> Placed:
        """Put an output into a region.

        Raises:
            TritonError: there is no such region, or it is not that large.
        """
        return Placed(self.regions.slice(region, byte_size, offset))


def of_model(treatments: Treatments, model: ServedModel) -> Treatments:
    """The same treatments, with what the elements of a model's outputs stand for."""
    has_batch = model.max_batch_size > 0
    return {
        output: Classified(treatment.count, OutputClasses(model.labels.get(output, ()), has_batch))
        if isinstance(treatment, Classified)
        else treatment
        for output, treatment in treatments.items()
    }


def treat(outputs: Sequence[Tensor], treatments: Treatments) -> tuple[list[Tensor], frozenset[str]]:
    """Treat outputs as the client wants.

    Args:
        outputs: of one response.
        treatments: not empty.

    Returns:
        The outputs as the response shows them, and the names of those whose bytes it leaves out because they
        are in a region now.

    Raises:
        TritonError: an output cannot be classified, or does not fit into its region.
    """
    treated: list[Tensor] = []
    placed: list[str] = []
    for tensor in outputs:
        treatment = treatments.get(tensor.name)
        if isinstance(treatment, Classified):
            tensor = top_classes(tensor, treatment.count, treatment.classes)
        elif treatment is not None:
            treatment.target.write(tensor.name, tensor.wire())
            placed.append(tensor.name)
        treated.append(tensor)
    return treated, frozenset(placed)


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
