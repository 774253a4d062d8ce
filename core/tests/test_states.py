"""Implicit state: given to a request, taken from its response, and left as it was after an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal, InvalidArg
from tritonpy.model.execution import Execution, own_states
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.states import SequenceStates, StateSpecs
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor, pack_bytes

State = dict[str, Any]  # Any: JSON


def state(**changes: Any) -> State:
    return {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_FP32", "dims": [2], **changes}


def specs(
    *states: State,
    max_batch_size: int = 8,
    outputs: tuple[str, ...] = ("Y",),
    is_decoupled: bool = False,
    **files: bytes,
) -> StateSpecs:
    config = {
        "name": "m",
        "max_batch_size": max_batch_size,
        "output": [{"name": name, "data_type": "TYPE_FP32", "dims": [1]} for name in outputs],
        "sequence_batching": {"state": list(states)},
        "model_transaction_policy": {"decoupled": is_decoupled},
    }
    return StateSpecs(config, files)


class Answers:
    def __init__(self) -> None:
        self.responses: list[InferResponse | None] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self.responses.append(response)


def step(states: SequenceStates, *responses: InferResponse, **given: Any) -> tuple[InferRequest, Answers]:
    """Execute one request and answer it; the last response is the final one."""
    answers = Answers()
    request = InferRequest("m", {}, **given)
    request.ticket.sink = answers
    request.ticket.states = states
    Execution([request], 1, ModelStats())
    for index, response in enumerate(responses, 1):
        request.deliver(response, index == len(responses))
    return request, answers


def gives(*values: float, name: str = "OUT") -> InferResponse:
    return InferResponse().add(name, np.array([values], np.float32)).add("Y", np.zeros((1, 1), np.float32))


def test_a_sequence_begins_with_zeros_and_a_one_for_what_may_have_any_size() -> None:
    states = specs(state(dims=[-1, 3])).fresh()

    tensor = states.tensor("IN")

    assert (tensor.name, tensor.datatype, tensor.shape) == ("IN", "FP32", (1, 1, 3))
    assert not tensor.numpy().any()


def test_without_batching_there_is_no_dimension_for_the_batch() -> None:
    assert specs(state(dims=[-1, 3]), max_batch_size=0).fresh().tensor("IN").shape == (1, 3)


def test_strings_begin_empty() -> None:
    tensor = specs(state(data_type="TYPE_STRING")).fresh().tensor("IN")

    assert tensor.numpy().tolist() == [[b"", b""]]


def test_an_initial_state_comes_from_its_file_whose_end_may_be_longer() -> None:
    initial = {"name": "start", "data_type": "TYPE_FP32", "dims": [2], "data_file": "start"}
    data = np.array([1.5, -2, 9], np.float32).tobytes()

    states = specs(state(dims=[-1], initial_state=[initial]), start=data).fresh()

    assert states.tensor("IN").numpy().tolist() == [[1.5, -2]]


def test_strings_come_from_a_file_in_wire_form() -> None:
    initial = {"name": "start", "data_type": "TYPE_STRING", "dims": [2], "data_file": "start"}
    data = pack_bytes(np.array([b"a", b"bcd"], object))

    states = specs(state(data_type="TYPE_STRING", initial_state=[initial]), start=data).fresh()

    assert states.tensor("IN").numpy().tolist() == [[b"a", b"bcd"]]


def test_a_file_that_is_too_small_is_refused() -> None:
    initial = {"name": "start", "data_type": "TYPE_FP32", "dims": [2], "data_file": "start"}

    with pytest.raises(InvalidArg) as refusal:
        specs(state(initial_state=[initial]), start=bytes(7))

    assert refusal.value.message == (
        "initial_state setting expects 8 bytes, but the data provided from start only has 7 bytes."
    )


def test_a_file_with_other_strings_is_refused() -> None:
    initial = {"name": "start", "data_type": "TYPE_STRING", "dims": [2], "data_file": "start"}
    data = pack_bytes(np.array([b"a", b"b", b"c"], object))

    with pytest.raises(
        InvalidArg, match=r"expects 2 strings for state 'IN', .* from start has others: 5 unexpec"
    ):
        specs(state(data_type="TYPE_STRING", initial_state=[initial]), start=data)


def test_a_state_too_large_for_the_memory_is_refused() -> None:
    with pytest.raises(InvalidArg, match=r"state 'IN' .* dims \[1152921504606846976\]"):
        specs(state(dims=[2**60]))


def test_what_a_request_gives_is_the_state_of_the_next_and_no_output() -> None:
    states = specs(state()).fresh()

    _, answers = step(states, gives(1, 2))
    request, _ = step(states)

    assert request.input("IN").numpy().tolist() == [[1, 2]]
    assert [tensor.name for response in answers.responses if response for tensor in response.outputs] == ["Y"]


def test_a_state_that_is_also_an_output_is_shown_to_whoever_asks() -> None:
    states = specs(state(), outputs=("Y", "OUT")).fresh()

    _, all_outputs = step(states, gives(1, 2))
    _, one_output = step(states, gives(3, 4), requested_outputs=("Y",))

    assert states.tensor("IN").numpy().tolist() == [[3, 4]]
    assert [out.name for response in all_outputs.responses if response for out in response.outputs] == [
        "OUT",
        "Y",
    ]
    assert [out.name for response in one_output.responses if response for out in response.outputs] == ["Y"]


def test_a_failed_request_leaves_the_state_as_it_was() -> None:
    states = specs(state()).fresh()
    step(states, gives(1, 2))

    step(states, InferResponse(error=Internal("boom")))
    step(states, gives(5, 6), InferResponse(error=Internal("after all")))

    assert states.tensor("IN").numpy().tolist() == [[1, 2]]


def test_a_response_without_the_state_leaves_it_as_it_was() -> None:
    states = specs(state()).fresh()
    step(states, gives(1, 2))

    step(states, InferResponse().add("Y", np.zeros((1, 1), np.float32)))

    assert states.tensor("IN").numpy().tolist() == [[1, 2]]


def test_the_last_of_many_responses_has_the_last_word() -> None:
    states = specs(state()).fresh()

    step(states, gives(1, 2), gives(3, 4), InferResponse())

    assert states.tensor("IN").numpy().tolist() == [[3, 4]]


@pytest.mark.parametrize("is_decoupled", [True, False])
def test_a_final_flag_with_nothing_but_a_state_brings_no_response(is_decoupled: bool) -> None:
    states = specs(state(), is_decoupled=is_decoupled).fresh()

    _, answers = step(states, InferResponse().add("OUT", np.array([[1, 2]], np.float32)))

    assert [response is None for response in answers.responses] == [is_decoupled]
    assert states.enter({})["IN"].numpy().tolist() == [[1, 2]]


def test_a_request_that_is_executed_again_is_given_what_it_gave() -> None:
    states = specs(state()).fresh()
    request, _ = step(states)
    request.deliver(gives(7, 8), final=False)

    Execution([request], 1, ModelStats())

    assert request.input("IN").numpy().tolist() == [[7, 8]]


def test_a_null_request_has_states_of_the_same_shapes_and_changes_none() -> None:
    states = specs(state(dims=[-1])).fresh()
    step(states, gives(1, 2, 3))

    request, _ = step(states.throw_away(), gives(4))

    assert request.input("IN").shape == (1, 3)
    assert states.tensor("IN").numpy().tolist() == [[1, 2, 3]]


def test_sequences_do_not_see_each_other() -> None:
    both = specs(state())
    one, other = both.fresh(), both.fresh()

    step(one, gives(1, 2))

    assert not other.tensor("IN").numpy().any()


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros((1, 2), np.int32), "gave state 'OUT' with datatype INT32, expected FP32"),
        (np.zeros((1, 3), np.float32), r"gave state 'OUT' with shape \[1, 3\], expected \[1, 2\]"),
        (np.zeros((2, 2), np.float32), r"gave state 'OUT' with shape \[2, 2\], expected \[1, 2\]"),
        (np.zeros(2, np.float32), r"gave state 'OUT' with shape \[2\], expected \[1, 2\]"),
    ],
)
def test_a_state_of_another_form_fails_its_request_and_changes_nothing(
    array: np.ndarray[Any, Any], complaint: str
) -> None:
    states = specs(state()).fresh()

    _, answers = step(states, InferResponse().add("OUT", array))

    assert not states.tensor("IN").numpy().any()
    [response] = answers.responses
    assert response is not None
    with pytest.raises(Internal, match=complaint):
        raise response.error or AssertionError("no error")


def test_a_state_may_change_where_its_dims_say_so() -> None:
    states = specs(state(dims=[-1])).fresh()

    step(states, gives(1, 2, 3))

    assert states.tensor("IN").shape == (1, 3)


def test_states_are_wanted_though_no_client_asks_for_them() -> None:
    request, _ = step(specs(state()).fresh(), requested_outputs=("Y",))

    assert request.wants("OUT")
    assert not request.wants("Z")


def test_rows_of_a_batch_get_memory_of_their_own_and_whole_arrays_are_kept() -> None:
    batch = np.arange(4, dtype=np.float32).reshape(2, 2)
    whole = np.ones((1, 2), np.float32)
    requests = []
    for _ in range(2):
        request = InferRequest("m", {})
        request.ticket.states = specs(state()).fresh()
        requests.append(request)
    responses = [InferResponse().add("OUT", batch[1:]), InferResponse().add("OUT", whole)]

    own_states(requests, responses)
    batch[:] = 9

    assert responses[0].outputs[0].numpy().tolist() == [[2, 3]]
    assert responses[1].outputs[0].numpy() is whole


def test_a_state_that_lies_in_memory_of_a_client_is_copied() -> None:
    received = bytearray(np.array([1, 2], np.float32).tobytes())
    words = bytearray(pack_bytes(np.array([b"a"], object)))
    states = specs(state(), state(input_name="S", output_name="T", data_type="TYPE_STRING", dims=[1])).fresh()
    response = InferResponse(
        [Tensor("OUT", "FP32", (1, 2), memoryview(received)), Tensor("T", "BYTES", (1, 1), memoryview(words))]
    )

    states.own(response)
    received[:] = bytes(len(received))
    words[4:] = b"z"

    assert response.outputs[0].numpy().tolist() == [[1, 2]]
    assert response.outputs[1].numpy().tolist() == [[b"a"]]


def test_the_dict_of_whoever_made_a_request_is_left_alone() -> None:
    given: dict[str, Tensor] = {}
    request = InferRequest("m", given)

    request.inputs = specs(state()).fresh().enter(request.inputs)

    assert list(request.inputs) == ["IN"]
    assert not given
