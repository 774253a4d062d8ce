"""Batch inputs: tensors that mark the requests inside a ragged batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES
from tritonpy.errors import Internal
from tritonpy.handles import JsonObject
from tritonpy.tensor import Array

Shapes = Sequence[tuple[int, ...]]
"""Of one input, one for each request, with the dimension of the batch."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """One batch input of a model.

    Attributes:
        kind: as in a configuration, such as `BATCH_ELEMENT_COUNT`.
        names: of the tensors that get its values.
        source: the input that is counted.
        datatype: `INT32` or `FP32`.
    """

    kind: str
    names: tuple[str, ...]
    source: str
    datatype: str

    def make(self, shapes: Shapes) -> Array:
        """The tensor for a batch of requests whose source has these shapes.

        Raises:
            Internal: a count is too large for the type.
        """
        values = _KINDS[self.kind](shapes)
        array = values.astype(DATATYPES[self.datatype].numpy)
        if values.size and values.max() > np.iinfo(np.int32).max:
            raise Internal(
                f"batch input '{self.names[0]}' of kind {self.kind} cannot hold {values.max()}, which it "
                f"counts in '{self.source}'; smaller batches have fewer elements"
            )
        return array


def read_batch_inputs(config: JsonObject) -> tuple[BatchInput, ...]:
    """The batch inputs of a complete configuration."""
    return tuple(
        BatchInput(
            entry.get("kind", "BATCH_ELEMENT_COUNT"),
            tuple(entry["target_name"]),
            entry["source_input"][0],
            CONFIG_DATATYPES[entry["data_type"]].name,
        )
        for entry in config.get("batch_input", ())
    )


def _element_counts(shapes: Shapes) -> Array:
    return np.array([prod(shape) for shape in shapes], np.int64)


def _item_shapes(shapes: Shapes) -> Array:
    rows = [shape[1:] for shape in shapes for _ in range(shape[0])]
    return np.array(rows, np.int64).reshape(len(rows), len(shapes[0]) - 1)


_KINDS: dict[str, Callable[[Shapes], Array]] = {
    "BATCH_ELEMENT_COUNT": _element_counts,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": lambda shapes: np.cumsum(_element_counts(shapes)),
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": lambda shapes: np.cumsum([0, *_element_counts(shapes)]),
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": lambda shapes: np.zeros(max(map(prod, shapes), default=0), np.int64),
    "BATCH_ITEM_SHAPE": _item_shapes,
    "BATCH_ITEM_SHAPE_FLATTEN": lambda shapes: _item_shapes(shapes).reshape(-1),
}
