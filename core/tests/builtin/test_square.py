from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Cancelled, InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.tensor import Tensor


def model_config(**changes: Any) -> JsonObject:
    return {
        "name": "square",
        "max_batch_size": 0,
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
        "model_transaction_policy": {"decoupled": True},
        **changes,
    }


def number(value: int, shape: tuple[int, ...] = (1,)) -> Tensor:
    return Tensor.from_numpy("IN", np.full(shape, value, np.int32))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_n_is_answered_by_n_responses_and_the_final_flag(start_slot, count):
    slot = start_slot("square", model_config())

    assert slot.execute(slot.request(number(count))) is None

    *responses, last = slot.mailbox.take_until_final()
    assert last is None
    assert [response.outputs[0].numpy().tolist() for response in responses] == [[count]] * count
    assert {output.name for response in responses for output in response.outputs} == {"OUT"}


def test_zero_is_answered_by_the_final_flag_alone(start_slot):
    slot = start_slot("square", model_config())

    slot.execute(slot.request(number(0)))

    assert slot.mailbox.take_until_final() == [None]


def test_answers_keep_the_batch_dimension_of_a_model_that_batches(start_slot):
    slot = start_slot("square", model_config(max_batch_size=4))

    slot.execute(slot.request(number(1, shape=(1, 1))))

    response, _ = slot.mailbox.take_until_final()
    assert response.outputs[0].shape == (1, 1)


@pytest.mark.parametrize("tensor", [number(-1), number(2, shape=(2, 1))], ids=["negative", "two rows"])
def test_what_is_not_a_count_is_refused(start_slot, tensor):
    slot = start_slot("square", model_config())

    slot.execute(slot.request(tensor, id="r1"))

    [response] = slot.mailbox.take_until_final()
    assert isinstance(response.error, InvalidArg)
    assert str(response.error).startswith("[request id: r1] input 'IN' of model 'square': got ")
    assert str(response.error).endswith("expected one number of responses, 0 or more")


def test_requests_of_one_batch_are_answered_side_by_side(start_slot):
    slot = start_slot("square", model_config(max_batch_size=2))
    blocked, quick = slot.request(number(2)), slot.request(number(1))
    release = slot.mailbox.hold(blocked)

    slot.execute(blocked, quick)

    assert [slot.mailbox.take()[0] for _ in range(2)] == [quick, quick]
    release.set()
    assert len(slot.mailbox.take_until_final()) == 3


def test_a_cancelled_request_gets_no_further_responses(start_slot):
    slot = start_slot("square", model_config())
    request = slot.request(number(1_000_000_000))

    slot.execute(request)
    slot.mailbox.take()
    request.cancel()

    last = slot.mailbox.take_until_final()[-1]
    assert isinstance(last.error, Cancelled)


def test_finalize_waits_for_the_answers(start_slot):
    slot = start_slot("square", model_config())
    slot.execute(slot.request(number(1000)))

    slot.finalize()

    assert slot.mailbox.count() == 1001


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"input": []}, r"expects one input, 'IN' of TYPE_INT32 with dims \[1\], got \[\]"),
        (
            {"input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}]},
            r"expects one input, .* got \[\('IN', 'TYPE_FP32', \[1\]\)\]",
        ),
        (
            {"output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [2]}]},
            r"expects one output, 'OUT' .* got \[\('OUT', 'TYPE_INT32', \[2\]\)\]",
        ),
        (
            {"model_transaction_policy": {"decoupled": False}},
            "set model_transaction_policy { decoupled: true }",
        ),
    ],
)
def test_a_model_it_is_not_for_is_refused_with_the_reason(start_slot, changes, reason):
    with pytest.raises(InvalidArg, match=reason):
        start_slot("square", model_config(**changes))
