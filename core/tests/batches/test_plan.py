"""Batches as a model sees them, and the responses that its outputs become; the model is a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonpy.batches.gather import Feeds
from tritonpy.batches.plan import BatchPlan
from tritonpy.buffers import BlockPool
from tritonpy.errors import Internal, InvalidArg
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.states import StateSpecs
from tritonpy.tensor import Array, Tensor

Config = dict[str, Any]  # Any: JSON


def tensor(name: str, *dims: int, **more: Any) -> Config:
    return {"name": name, "data_type": "TYPE_FP32", "dims": list(dims), **more}


def config(inputs: list[Config], outputs: list[Config], max_batch_size: int = 8, **more: Any) -> Config:
    return {"name": "m", "max_batch_size": max_batch_size, "input": inputs, "output": outputs, **more}


def request(rows: int = 1, outputs: tuple[str, ...] | None = None, **inputs: Any) -> InferRequest:
    tensors = {
        name: value if isinstance(value, Tensor) else Tensor.from_numpy(name, np.asarray(value, np.float32))
        for name, value in inputs.items()
    }
    made = InferRequest("m", tensors, requested_outputs=outputs)
    made.batch_size = rows
    return made


class Model:
    """Computes outputs by name and remembers what it was given."""

    def __init__(self, **outputs: Callable[[Feeds], Array]) -> None:
        self.calls: list[Feeds] = []
        self.asked: list[list[str]] = []
        self._outputs = outputs

    def __call__(self, feeds: Feeds, names: list[str]) -> Sequence[Array]:
        self.calls.append({name: array.copy() for name, array in feeds.items()})
        self.asked.append(names)
        return [self._outputs[name](feeds) for name in names]


def execute(given: Config, model: Model, *requests: InferRequest) -> list[InferResponse]:
    return BatchPlan(given, BlockPool()).execute(requests, model)


def values(response: InferResponse) -> dict[str, Any]:
    if response.error is not None:
        raise response.error
    return {out.name: out.numpy().tolist() for out in response.outputs}


PLAIN = config([tensor("X", -1)], [tensor("Y", -1)])
RAGGED = config([tensor("X", -1, allow_ragged_batch=True)], [tensor("Y", -1)])
COUNTS = {
    "kind": "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
    "target_name": ["ENDS", "SAME"],
    "data_type": "TYPE_INT32",
    "source_input": ["X"],
}
CUT = {"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "target_name": ["Y"], "source_input": ["X"]}


def test_requests_go_one_under_the_other_and_get_their_rows_back() -> None:
    model = Model(Y=lambda feeds: -feeds["X"])

    responses = execute(PLAIN, model, request(2, X=[[1, 2], [3, 4]]), request(X=[[5, 6]]))

    assert [feeds["X"].tolist() for feeds in model.calls] == [[[1, 2], [3, 4], [5, 6]]]
    assert [values(response) for response in responses] == [{"Y": [[-1, -2], [-3, -4]]}, {"Y": [[-5, -6]]}]


def test_requests_of_other_shapes_go_together_with_their_like() -> None:
    model = Model(Y=lambda feeds: -feeds["X"])

    responses = execute(PLAIN, model, request(X=[[1]]), request(X=[[2, 3]]), request(X=[[4]]))

    assert [feeds["X"].tolist() for feeds in model.calls] == [[[1], [4]], [[2, 3]]]
    assert [values(response) for response in responses] == [{"Y": [[-1]]}, {"Y": [[-2, -3]]}, {"Y": [[-4]]}]


def test_only_requests_with_the_same_inputs_go_together() -> None:
    given = config([tensor("X", 1), tensor("BIAS", 1, optional=True)], [tensor("Y", 1)])
    model = Model(Y=lambda feeds: feeds["X"] + feeds.get("BIAS", 0))

    responses = execute(
        given,
        model,
        request(X=[[1]]),
        request(X=[[2]], BIAS=[[10]]),
        request(X=[[3]]),
        request(BIAS=[[20]], X=[[4]]),
    )

    assert [sorted(feeds) for feeds in model.calls] == [["X"], ["BIAS", "X"]]
    assert [values(response)["Y"] for response in responses] == [[[1]], [[12]], [[3]], [[24]]]


def test_without_batching_every_request_is_a_call() -> None:
    given = config([tensor("X", -1)], [tensor("Y", -1)], max_batch_size=0)
    model = Model(Y=lambda feeds: -feeds["X"])

    responses = execute(given, model, request(X=[1, 2]), request(X=[3, 4]))

    assert [feeds["X"].tolist() for feeds in model.calls] == [[1, 2], [3, 4]]
    assert [values(response) for response in responses] == [{"Y": [-1, -2]}, {"Y": [-3, -4]}]


def test_ragged_requests_are_joined_and_counted_and_their_outputs_cut() -> None:
    given = {**RAGGED, "batch_input": [COUNTS], "batch_output": [CUT]}
    model = Model(Y=lambda feeds: -feeds["X"])

    responses = execute(
        given, model, request(X=[[1, 2, 3]]), request(2, X=[[4], [5]]), request(X=np.zeros((1, 0)))
    )

    [feeds] = model.calls
    assert feeds["X"].tolist() == [1, 2, 3, 4, 5]
    assert feeds["ENDS"].tolist() == feeds["SAME"].tolist() == [0, 3, 5, 5]
    assert [values(response) for response in responses] == [
        {"Y": [[-1, -2, -3]]},
        {"Y": [[-4], [-5]]},
        {"Y": [[]]},
    ]


def test_a_ragged_request_alone_is_flat_too() -> None:
    given = {**RAGGED, "batch_input": [COUNTS], "batch_output": [CUT]}
    model = Model(Y=lambda feeds: -feeds["X"])

    [response] = execute(given, model, request(2, X=[[1, 2], [3, 4]]))

    assert model.calls[0]["X"].tolist() == [1, 2, 3, 4]
    assert values(response) == {"Y": [[-1, -2], [-3, -4]]}


def test_an_output_with_rows_beside_a_ragged_input_has_a_row_for_each_item() -> None:
    given = {**RAGGED, "batch_input": [COUNTS]}
    model = Model(Y=lambda feeds: np.add.reduceat(feeds["X"], feeds["ENDS"][:-1])[:, None])

    responses = execute(given, model, request(X=[[1, 2, 3]]), request(X=[[4]]))

    assert [values(response) for response in responses] == [{"Y": [[6]]}, {"Y": [[4]]}]


def test_shapes_beside_a_ragged_input_still_have_to_be_equal() -> None:
    given = config([tensor("X", -1, allow_ragged_batch=True), tensor("Z", -1)], [tensor("Y", -1)])
    given["batch_output"] = [CUT]
    model = Model(Y=lambda feeds: feeds["X"])

    execute(
        given, model, request(X=[[1]], Z=[[1]]), request(X=[[1, 2]], Z=[[1, 2]]), request(X=[[3, 4]], Z=[[9]])
    )

    assert [feeds["X"].tolist() for feeds in model.calls] == [[1, 3, 4], [1, 2]]


def test_ragged_strings_are_joined_too() -> None:
    given = {**RAGGED, "batch_output": [CUT]}
    given["input"] = [tensor("X", -1, allow_ragged_batch=True) | {"data_type": "TYPE_STRING"}]
    given["output"] = [tensor("Y", -1) | {"data_type": "TYPE_STRING"}]
    model = Model(Y=lambda feeds: feeds["X"])
    texts = [np.array([[b"a", b"bc"]], object), np.array([[b""]], object)]

    responses = execute(given, model, *(request(X=Tensor.from_numpy("X", text)) for text in texts))

    assert model.calls[0]["X"].tolist() == [b"a", b"bc", b""]
    assert [values(response)["Y"] for response in responses] == [[[b"a", b"bc"]], [[b""]]]


def test_fixed_dims_of_a_cut_output_are_its_own() -> None:
    given = {**RAGGED, "batch_output": [CUT], "output": [tensor("Y", -1, 2)]}
    model = Model(Y=lambda feeds: np.repeat(feeds["X"], 2))

    responses = execute(given, model, request(X=[[1, 2]]), request(X=[[3]]))

    assert [values(response) for response in responses] == [{"Y": [[[1, 1], [2, 2]]]}, {"Y": [[[3, 3]]]}]


def test_an_output_that_is_not_as_large_as_its_shapes_say_fails() -> None:
    given = {**RAGGED, "batch_output": [CUT]}

    [response] = execute(given, Model(Y=lambda feeds: feeds["X"][1:]), request(X=[[1, 2, 3]]))

    with pytest.raises(Internal, match=r"output 'Y' of shape \[2\]; expected 3 elements, as many as .* 'X'"):
        values(response)


def test_an_output_with_more_free_dims_than_its_source_fails() -> None:
    given = {**RAGGED, "batch_output": [CUT], "output": [tensor("Y", -1, -1)]}

    [response] = execute(given, Model(Y=lambda feeds: feeds["X"]), request(X=[[1, 2]]))

    with pytest.raises(Internal, match=r"the request has shape \[1, 2\] and the output 3 dimensions"):
        values(response)


def test_what_is_counted_has_to_be_there() -> None:
    given = {**RAGGED, "batch_input": [COUNTS], "batch_output": [CUT]}
    given["input"] = [*given["input"], tensor("Z", 1)]
    model = Model(Y=lambda feeds: feeds["Z"])

    [response] = execute(given, model, request(Z=[[1]]))

    with pytest.raises(InvalidArg, match="batch input 'ENDS' of model 'm' is made from input 'X', which"):
        values(response)


def test_equal_shape_tensors_are_given_once_and_others_are_another_batch() -> None:
    given = config(
        [tensor("X", 1), {"name": "S", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}],
        [tensor("Y", 1), {"name": "T", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}],
    )
    model = Model(Y=lambda feeds: feeds["X"], T=lambda feeds: feeds["S"] * 2)

    def shaped(value: float, *sizes: int) -> InferRequest:
        return request(X=[[value]], S=Tensor.from_numpy("S", np.array(sizes, np.int32)))

    responses = execute(given, model, shaped(1, 4, 5), shaped(2, 4, 6), shaped(3, 4, 5))

    assert [feeds["S"].tolist() for feeds in model.calls] == [[4, 5], [4, 6]]
    assert [values(response) for response in responses] == [
        {"Y": [[1]], "T": [8, 10]},
        {"Y": [[2]], "T": [8, 12]},
        {"Y": [[3]], "T": [8, 10]},
    ]


def test_scalars_lose_and_regain_the_dimension_of_their_configuration() -> None:
    given = config([tensor("X", 1)], [tensor("Y", 1, 1)], max_batch_size=0)
    model = Model(Y=lambda feeds: feeds["X"] * 2)

    [response] = BatchPlan(given, BlockPool(), scalars={"X", "Y"}).execute([request(X=[3])], model)

    assert model.calls[0]["X"].shape == ()
    assert values(response) == {"Y": [[6]]}


def test_states_of_sequences_are_joined_and_given_back_one_by_one() -> None:
    state = {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}
    given = config([tensor("X", 1)], [tensor("Y", 1)], sequence_batching={"state": [state]})
    specs = StateSpecs(given, {})
    sequences = [specs.fresh(), specs.fresh()]
    model = Model(Y=lambda feeds: feeds["IN"], OUT=lambda feeds: feeds["IN"] + feeds["X"])

    for step in range(3):
        requests = [request(outputs=("Y",), X=[[10**index + step]]) for index in range(2)]
        for made, states in zip(requests, sequences, strict=True):
            made.ticket.states = states
            made.inputs = states.enter(made.inputs)
        for made, response in zip(requests, execute(given, model, *requests), strict=True):
            made.deliver(response)

    assert [feeds["IN"].tolist() for feeds in model.calls] == [[[0], [0]], [[1], [10]], [[3], [21]]]
    assert [states.tensor("IN").numpy().tolist() for states in sequences] == [[[6]], [[33]]]
    assert model.asked == [["Y", "OUT"]] * 3


def test_controls_go_with_the_rows_of_their_requests() -> None:
    control = {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]}
    given = config([tensor("X", 1)], [tensor("Y", 1)], sequence_batching={"control_input": [control]})
    model = Model(Y=lambda feeds: feeds["X"] * feeds["START"])

    responses = execute(given, model, request(X=[[5]], START=[[1]]), request(X=[[6]], START=[[0]]))

    assert [values(response) for response in responses] == [{"Y": [[5]]}, {"Y": [[0]]}]


def test_a_request_that_cannot_be_read_fails_alone() -> None:
    def read(binding: object, given: Tensor) -> Array:
        array = given.numpy()
        if array[0, 0] < 0:
            raise InvalidArg("negative")
        return array

    model = Model(Y=lambda feeds: feeds["X"])
    requests = [request(X=[[1]]), request(X=[[-1]]), request(Q=[[1]]), request(X=[[3]])]

    responses = BatchPlan(PLAIN, BlockPool()).execute(requests, model, read)

    assert [response.error and response.error.message for response in responses] == [
        None,
        "negative",
        "unexpected inference input 'Q' for model 'm'",
        None,
    ]
    assert model.calls[0]["X"].tolist() == [[1], [3]]


def test_what_the_model_refuses_in_a_batch_it_is_given_alone() -> None:
    def negated(feeds: Feeds) -> Array:
        if (feeds["X"] == 2).any():
            raise Internal("no two")
        return -feeds["X"]

    responses = execute(PLAIN, Model(Y=negated), *(request(X=[[value]]) for value in (1, 2, 3)))

    assert [response.error and response.error.message for response in responses] == [None, "no two", None]
    assert values(responses[2]) == {"Y": [[-3]]}


def test_outputs_that_nobody_wants_are_not_asked_for() -> None:
    given = config([tensor("X", 1)], [tensor("Y", 1), tensor("Z", 1), tensor("W", 1)])
    model = Model(Y=lambda feeds: feeds["X"], Z=lambda feeds: feeds["X"])

    responses = execute(given, model, request(outputs=("Y",), X=[[1]]), request(outputs=("Z",), X=[[2]]))
    [nothing] = execute(given, model, request(outputs=(), X=[[1]]))

    assert model.asked == [["Y", "Z"]]
    assert [values(response) for response in responses] == [{"Y": [[1]]}, {"Z": [[2]]}]
    assert values(nothing) == {}


def test_an_output_without_the_rows_of_the_batch_fails() -> None:
    [response] = execute(PLAIN, Model(Y=lambda feeds: feeds["X"][0]), request(X=[[1, 2]]))

    with pytest.raises(Internal, match=r"output 'Y' of shape \[2\] for a batch of 1; expected 1 as first"):
        values(response)


MATRICES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4)).flatmap(
        lambda shape: arrays.arrays(np.float32, shape, elements=st.integers(-9, 9))
    ),
    min_size=1,
    max_size=6,
)


@given(MATRICES)
def test_any_ragged_batch_comes_back_as_it_went(matrices: list[Array]) -> None:
    given = {**RAGGED, "batch_input": [COUNTS], "batch_output": [CUT]}
    model = Model(Y=lambda feeds: feeds["X"])

    responses = execute(given, model, *(request(len(matrix), X=matrix) for matrix in matrices))

    [feeds] = model.calls
    assert feeds["X"].tolist() == [value for matrix in matrices for value in matrix.reshape(-1).tolist()]
    assert feeds["ENDS"][-1] == feeds["X"].size
    for matrix, response in zip(matrices, responses, strict=True):
        [out] = response.outputs
        assert out.shape == matrix.shape
        assert np.array_equal(out.numpy(), matrix)


@given(MATRICES)
def test_any_batch_comes_back_as_it_went(matrices: list[Array]) -> None:
    model = Model(Y=lambda feeds: feeds["X"])

    responses = execute(PLAIN, model, *(request(len(matrix), X=matrix) for matrix in matrices))

    assert len(model.calls) == len({matrix.shape[1:] for matrix in matrices})
    for matrix, response in zip(matrices, responses, strict=True):
        [out] = response.outputs
        assert out.shape == matrix.shape
        assert np.array_equal(out.numpy(), matrix)
