"""Every kind of batch input: the values of examples, and what holds for any batch."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.batches.batch_inputs import BatchInput, read_batch_inputs
from tritonpy.errors import Internal

SHAPES = [(1, 3), (2, 4), (1, 5)]
RANKS = st.integers(1, 4)
BATCHES = RANKS.flatmap(lambda rank: st.lists(st.tuples(*[st.integers(0, 5)] * rank), min_size=1, max_size=6))


def make(kind: str, shapes: list[tuple[int, ...]], datatype: str = "INT32") -> np.ndarray[Any, Any]:
    return BatchInput(f"BATCH_{kind}", ("B",), "X", datatype).make(shapes)


@pytest.mark.parametrize("datatype", ["INT32", "FP32"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("ELEMENT_COUNT", [3, 8, 5]),
        ("ACCUMULATED_ELEMENT_COUNT", [3, 11, 16]),
        ("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 3, 11, 16]),
        ("ITEM_SHAPE", [[3], [4], [4], [5]]),
        ("ITEM_SHAPE_FLATTEN", [3, 4, 4, 5]),
    ],
)
def test_each_kind_has_its_values(kind: str, values: list[Any], datatype: str) -> None:
    array = make(kind, SHAPES, datatype)

    assert array.tolist() == values
    assert array.dtype == {"INT32": np.int32, "FP32": np.float32}[datatype]


def test_the_largest_count_is_a_shape() -> None:
    array = make("MAX_ELEMENT_COUNT_AS_SHAPE", SHAPES)

    assert array.shape == (8,)
    assert not array.any()


def test_items_of_matrices_have_a_row_for_each() -> None:
    assert make("ITEM_SHAPE", [(2, 3, 1), (1, 2, 2)]).tolist() == [[3, 1], [3, 1], [2, 2]]
    assert make("ITEM_SHAPE_FLATTEN", [(2, 3, 1), (1, 2, 2)]).tolist() == [3, 1, 3, 1, 2, 2]


@given(BATCHES)
def test_counts_add_up(shapes: list[tuple[int, ...]]) -> None:
    counts = [prod(shape) for shape in shapes]
    rows = sum(shape[0] for shape in shapes)

    assert make("ELEMENT_COUNT", shapes).tolist() == counts
    assert make("ACCUMULATED_ELEMENT_COUNT", shapes).tolist() == list(accumulate(counts))
    assert make("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", shapes).tolist() == [0, *accumulate(counts)]
    assert make("MAX_ELEMENT_COUNT_AS_SHAPE", shapes).shape == (max(counts),)
    items = make("ITEM_SHAPE", shapes)
    assert items.shape == (rows, len(shapes[0]) - 1)
    assert items.prod(axis=1).sum() == sum(counts)
    assert make("ITEM_SHAPE_FLATTEN", shapes).tolist() == items.reshape(-1).tolist()


def test_a_count_that_the_type_cannot_hold_is_an_error() -> None:
    with pytest.raises(Internal, match="batch input 'B' of kind BATCH_ELEMENT_COUNT cannot hold 4294967296"):
        make("ELEMENT_COUNT", [(1, 2**32)])


def test_they_are_read_from_a_configuration() -> None:
    entry = {
        "kind": "BATCH_ITEM_SHAPE",
        "target_name": ["A", "B"],
        "data_type": "TYPE_FP32",
        "source_input": ["X"],
    }

    assert read_batch_inputs({"batch_input": [entry]}) == (
        BatchInput("BATCH_ITEM_SHAPE", ("A", "B"), "X", "FP32"),
    )
