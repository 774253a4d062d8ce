"""What a backend in C may complete of a configuration, as asked of a real server 2.51."""

from __future__ import annotations

import json

import pytest
from tritonpy.plugin import Internal, InvalidArg, JsonObject
from tritonpy_abi.backends.completion import completed_config

TENSORS: JsonObject = {
    "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [1]}],
}
GIVEN: JsonObject = {
    "name": "net",
    "backend": "mine",
    "max_batch_size": 8,
    "input": [],
    "output": [],
    "parameters": {"A": {"string_value": "given"}},
}


@pytest.mark.parametrize(
    ("given", "wanted", "becomes"),
    [
        ({}, TENSORS, {**TENSORS, "max_batch_size": 0}),
        ({}, {"max_batch_size": 4}, {"max_batch_size": 4, "input": [], "output": []}),
        (
            {},
            {
                **TENSORS,
                "name": "other",
                "backend": "other",
                "parameters": {},
                "instance_group": [{"count": 3}],
            },
            {**TENSORS, "max_batch_size": 0},
        ),
        (
            {"model_transaction_policy": {"decoupled": True}},
            {**TENSORS, "model_transaction_policy": {"decoupled": False}},
            {**TENSORS, "max_batch_size": 0, "model_transaction_policy": {"decoupled": False}},
        ),
        (
            {},
            {**TENSORS, "max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [2]}},
            {**TENSORS, "max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [2]}},
        ),
        (
            {"dynamic_batching": {"preferred_batch_size": [4]}},
            {**TENSORS, "max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [2]}},
            {**TENSORS, "max_batch_size": 4},
        ),
        # Triton refuses this one, and names the same scheduler twice.
        ({"dynamic_batching": {}}, {**TENSORS, "max_batch_size": 4}, {**TENSORS, "max_batch_size": 4}),
    ],
)
def test_a_backend_sets_what_is_its_own_and_the_rest_stays(
    given: JsonObject, wanted: JsonObject, becomes: JsonObject
) -> None:
    assert completed_config("net", {**GIVEN, **given}, json.dumps(wanted)) == {**GIVEN, **given, **becomes}


def test_a_backend_cannot_exchange_the_scheduler() -> None:
    with pytest.raises(Internal) as refused:
        completed_config("net", {**GIVEN, "dynamic_batching": {}}, '{"sequence_batching": {}}')

    assert refused.value.message == (
        "Cannot update scheduling choice from dynamic_batching to sequence_batching when auto-completing."
    )


@pytest.mark.parametrize(("text", "fault"), [("{nope", "no JSON: "), ("[]", "no JSON object")])
def test_a_text_that_is_no_configuration_is_refused(text: str, fault: str) -> None:
    with pytest.raises(
        InvalidArg, match=rf"^the backend of model 'net' has set a configuration that is {fault}"
    ):
        completed_config("net", GIVEN, text)
