"""Tensors with other dimensions for a model than for its clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Internal
from tritonpy.request import InferRequest
from tritonpy.reshape import Move, Reshape, Shape, read_reshape
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor


def reshape(dims: list[int], shape: list[int], max_batch_size: int = 4) -> Reshape:
    tensor: dict[str, Any] = {"data_type": "TYPE_FP32", "dims": dims, "reshape": {"shape": shape}}
    made = read_reshape(
        {
            "name": "m",
            "max_batch_size": max_batch_size,
            "input": [{"name": "X", **tensor}, {"name": "PLAIN", "dims": [1]}],
            "output": [{"name": "Y", **tensor}, {"name": "PLAIN", "dims": [1]}],
        }
    )
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("client", "model", "lead", "came", "wanted"),
    [
        ((4,), (2, 2), 0, (4,), (2, 2)),
        ((4,), (2, 2), 1, (5, 4), (5, 2, 2)),
        ((1,), (), 1, (5, 1), (5,)),
        ((-1, 3, -1), (3, -1, -1), 0, (5, 3, 7), (3, 5, 7)),
        ((-1, 2, 2), (-1, 4), 1, (0, 6, 2, 2), (0, 6, 4)),
    ],
)
def test_free_dimensions_move_in_order_and_back(
    client: Shape, model: Shape, lead: int, came: Shape, wanted: Shape
) -> None:
    assert Move(lead, client, model).apply(came) == wanted
    assert Move(lead, model, client).apply(wanted) == came


@given(st.lists(st.one_of(st.just(-1), st.integers(1, 4)), min_size=1, max_size=4), st.data())
def test_no_element_is_lost(dims: list[int], data: st.DataObject) -> None:
    """Neighbours are joined, and a 1 is put between others; what may be any size stays."""
    shape: list[int] = []
    for dim in dims:
        if shape and -1 not in (dim, shape[-1]):
            shape[-1] *= dim
        else:
            shape += [1, dim] if data.draw(st.booleans()) else [dim]
    came = (data.draw(st.integers(1, 3)), *(data.draw(st.integers(0, 3)) if d == -1 else d for d in dims))

    there = Move(1, tuple(dims), tuple(shape)).apply(came)

    assert np.prod(there) == np.prod(came)
    assert Move(1, tuple(shape), tuple(dims)).apply(there) == came


def test_inputs_are_reshaped_and_their_bytes_stay_where_they_are() -> None:
    data = bytes(range(16))
    inputs = {
        "X": Tensor("X", "FP32", (1, 4), data),
        "PLAIN": Tensor("PLAIN", "FP32", (1, 1), bytes(4)),
    }

    moved = reshape([4], [2, 2]).to_model(inputs)

    assert moved["X"].shape == (1, 2, 2)
    assert moved["X"].buffer is data
    assert moved["PLAIN"] is inputs["PLAIN"]
    assert inputs["X"].shape == (1, 4)


def test_an_array_is_reshaped_with_its_tensor() -> None:
    array = np.arange(4, dtype=np.float32).reshape(1, 4)

    tensor = Tensor.from_numpy("X", array).reshaped((1, 2, 2))

    assert tensor.numpy().tolist() == [[[0, 1], [2, 3]]]
    assert np.shares_memory(tensor.numpy(), array)


class Answers:
    def __init__(self) -> None:
        self.responses: list[InferResponse] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert response is not None
        self.responses.append(response)


def deliver(array: Any, made: Reshape) -> InferResponse:
    answers = Answers()
    request = InferRequest("m", {})
    request.ticket.sink = answers
    request.ticket.reshape = made
    request.deliver(InferResponse().add("PLAIN", np.zeros((1, 1), np.float32)).add("Y", array))
    return answers.responses[0]


def test_outputs_are_reshaped_on_their_way_to_clients() -> None:
    response = deliver(np.zeros((3, 2, 2), np.float32), reshape([4], [2, 2]))

    assert [tensor.shape for tensor in response.outputs] == [(1, 1), (3, 4)]


def test_an_output_of_an_impossible_shape_is_the_model_s_fault() -> None:
    response = deliver(np.zeros((3, 5), np.float32), reshape([4], [2, 2]))

    with pytest.raises(
        Internal, match=r"gave output 'Y' of shape \[3, 5\], expected \[-1, 2, 2\], the 'shape'"
    ):
        raise response.error or AssertionError("no error")


def test_nothing_to_reshape_is_nothing_to_do() -> None:
    assert read_reshape({"name": "m", "input": [{"name": "X", "dims": [1]}]}) is None
