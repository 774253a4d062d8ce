from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Cancelled, InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.tensor import Tensor

FOREVER_MS = 3_600_000


def tensor_config(name: str, datatype: str, *dims: int) -> JsonObject:
    return {"name": name, "data_type": datatype, "dims": list(dims)}


INPUTS = [
    tensor_config("IN", "TYPE_INT32", -1),
    tensor_config("DELAY", "TYPE_UINT32", -1),
    tensor_config("WAIT", "TYPE_UINT32", 1),
]
OUTPUTS = [tensor_config("OUT", "TYPE_INT32", 1), tensor_config("IDX", "TYPE_UINT32", 1)]


def model_config(**changes: Any) -> JsonObject:
    return {
        "name": "repeat",
        "max_batch_size": 0,
        "input": INPUTS,
        "output": OUTPUTS,
        "model_transaction_policy": {"decoupled": True},
        **changes,
    }


def tensors(elements: list[int], delays_ms: list[int], wait_ms: int = 0) -> list[Tensor]:
    return [
        Tensor.from_numpy("IN", np.array(elements, np.int32)),
        Tensor.from_numpy("DELAY", np.array(delays_ms, np.uint32)),
        Tensor.from_numpy("WAIT", np.array([wait_ms], np.uint32)),
    ]


def test_every_element_is_one_response_with_its_index(start_slot):
    slot = start_slot("repeat", model_config())

    assert slot.execute(slot.request(*tensors([7, -8, 9], [0, 2, 1]))) is None

    *responses, last = slot.mailbox.take_until_final()
    assert last is None
    got = [[(o.name, o.datatype, o.numpy().tolist()) for o in response.outputs] for response in responses]
    assert got == [
        [("OUT", "INT32", [element]), ("IDX", "UINT32", [index])] for index, element in enumerate([7, -8, 9])
    ]


def test_no_elements_are_answered_by_the_final_flag_alone(start_slot):
    slot = start_slot("repeat", model_config())

    slot.execute(slot.request(*tensors([], [])))

    assert slot.mailbox.take_until_final() == [None]


def test_a_response_waits_for_its_delay(start_slot):
    slot = start_slot("repeat", model_config())
    start = time.monotonic()

    slot.execute(slot.request(*tensors([1, 2], [0, 60])))
    slot.mailbox.take()
    slot.mailbox.take()

    assert time.monotonic() - start >= 0.06


def test_the_instance_is_busy_for_the_wait_time(start_slot):
    slot = start_slot("repeat", model_config())
    start = time.monotonic()

    slot.execute(slot.request(*tensors([], [], wait_ms=60)))

    assert time.monotonic() - start >= 0.06


def test_the_instance_takes_the_next_request_while_responses_are_due(start_slot):
    slot = start_slot("repeat", model_config())
    slow = slot.request(*tensors([1], [FOREVER_MS]))
    quick = slot.request(*tensors([2], [0]))

    slot.execute(slow)
    slot.execute(quick)

    assert [slot.mailbox.take()[0] for _ in range(2)] == [quick, quick]
    assert slot.mailbox.count() == 0
    slow.cancel()
    [last] = slot.mailbox.take_until_final()
    assert isinstance(last.error, Cancelled)


def test_a_cancelled_request_frees_the_instance_before_its_wait_time(start_slot):
    slot = start_slot("repeat", model_config())
    request = slot.request(*tensors([1], [0], wait_ms=FOREVER_MS))
    request.cancel()

    slot.execute(request)

    [last] = slot.mailbox.take_until_final()
    assert isinstance(last.error, Cancelled)


def test_delays_that_do_not_match_the_elements_are_refused(start_slot):
    slot = start_slot("repeat", model_config())

    slot.execute(slot.request(*tensors([1, 2, 3], [0])))

    [response] = slot.mailbox.take_until_final()
    assert isinstance(response.error, InvalidArg)
    assert "as many elements in 'DELAY' as in 'IN', got 1 and 3" in str(response.error)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_batch_size": 8}, "expects max_batch_size 0, got 8"),
        ({"model_transaction_policy": {}}, "set model_transaction_policy { decoupled: true }"),
        (
            {"input": INPUTS[:2]},
            "expects input {'IN': .*'WAIT': 'TYPE_UINT32'}, got {'IN': 'TYPE_INT32', 'DELAY'",
        ),
        (
            {"output": [OUTPUTS[0], tensor_config("IDX", "TYPE_INT32", 1)]},
            "expects output .* got {'OUT': 'TYPE_INT32', 'IDX': 'TYPE_INT32'}",
        ),
        (
            {"input": [INPUTS[0], tensor_config("DELAY", "TYPE_UINT32", 4), INPUTS[2]]},
            r"IN and DELAY to have the same one dimension, got dims \[-1\] and \[4\]",
        ),
        (
            {"input": [*INPUTS[:2], tensor_config("WAIT", "TYPE_UINT32", 2)]},
            r"expects WAIT with dims \[1\], got \[2\]",
        ),
        (
            {"output": [tensor_config("OUT", "TYPE_INT32", -1), OUTPUTS[1]]},
            r"expects OUT with dims \[1\], got \[-1\]",
        ),
    ],
)
def test_a_model_it_is_not_for_is_refused_with_the_reason(start_slot, changes, reason):
    with pytest.raises(InvalidArg, match=reason):
        start_slot("repeat", model_config(**changes))


def test_the_order_of_inputs_in_the_configuration_does_not_matter(start_slot):
    slot = start_slot("repeat", model_config(input=INPUTS[::-1], output=OUTPUTS[::-1]))

    slot.execute(slot.request(*tensors([5], [0])))

    response, last = slot.mailbox.take_until_final()
    assert response.outputs[0].numpy().tolist() == [5]
    assert last is None
