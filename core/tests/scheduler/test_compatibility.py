"""Which requests can be in one batch, by what their model's configuration says of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonpy.request import InferRequest
from tritonpy.scheduler.compatibility import RequestKinds, read_kinds
from tritonpy.tensor import Tensor


def kinds(max_batch_size: int = 8, **inputs: dict[str, Any]) -> RequestKinds:
    return read_kinds(
        {
            "max_batch_size": max_batch_size,
            "input": [{"name": name, **given} for name, given in inputs.items()],
        }
    )


def request(**inputs: Any) -> InferRequest:
    return InferRequest(
        "m", {name: Tensor.from_numpy(name, np.asarray(value)) for name, value in inputs.items()}
    )


def go_together(kinds_of: RequestKinds, one: InferRequest, other: InferRequest) -> bool:
    return kinds_of.of(one) == kinds_of.of(other)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dims": [-1]}, False),
        ({"dims": ["-1"]}, False),
        ({"dims": [-1], "allow_ragged_batch": True}, True),
        ({"dims": [2]}, True),  # who sends another shape is refused before
    ],
)
def test_shapes_have_to_be_equal_where_any_size_is_taken(given: dict[str, Any], expected: bool) -> None:
    assert go_together(kinds(X=given), request(X=[[1, 2]]), request(X=[[1, 2, 3]])) is expected


def test_the_size_of_the_batch_may_differ() -> None:
    one, other = request(X=[[1, 2]]), request(X=[[1, 2], [3, 4]])

    assert go_together(kinds(X={"dims": [-1]}), one, other)
    assert not go_together(kinds(0, X={"dims": [-1, 2]}), one, other)


def test_shape_tensors_have_to_have_equal_values() -> None:
    kinds_of = kinds(X={"dims": [1]}, S={"dims": [2], "is_shape_tensor": True})

    assert go_together(kinds_of, request(X=[[1]], S=[3, 4]), request(X=[[2], [3]], S=[3, 4]))
    assert not go_together(kinds_of, request(X=[[1]], S=[3, 4]), request(X=[[2]], S=[4, 3]))


def test_with_an_optional_input_the_same_inputs_are_needed() -> None:
    kinds_of = kinds(X={"dims": [1]}, Y={"dims": [-1], "optional": True})

    assert go_together(kinds_of, request(X=[[1]], Y=[[1]]), request(Y=[[1]], X=[[2]]))
    assert not go_together(kinds_of, request(X=[[1]], Y=[[1]]), request(X=[[2]]))


def test_everything_goes_together_where_nothing_is_said() -> None:
    assert go_together(kinds(X={"dims": [1]}), request(X=[[1]]), request(X=[[1], [2]]))
