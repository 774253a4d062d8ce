from __future__ import annotations

import json

import pytest
import triton_python_backend_utils as pb_utils

X = {"name": "X", "data_type": "TYPE_FP32", "dims": [4]}
WHERE = "in auto-complete-config function for model 'net'"


def config(**fields):
    return pb_utils.ModelConfig(
        json.dumps({"name": "net", "max_batch_size": 0, "input": [], "output": [], **fields})
    )


def test_everything_set_shows_in_the_dict():
    completed = config()

    completed.set_max_batch_size(8)
    completed.set_dynamic_batching()
    completed.add_input({**X, "optional": True})
    completed.add_output(X)
    completed.set_model_transaction_policy({"decoupled": True})

    assert completed.as_dict() == {
        "name": "net",
        "max_batch_size": 8,
        "input": [{**X, "optional": True}],
        "output": [X],
        "dynamic_batching": {},
        "model_transaction_policy": {"decoupled": True},
    }


def test_a_configuration_without_any_fields_is_completed_too():
    completed = pb_utils.ModelConfig("{}")

    completed.set_max_batch_size(4)
    completed.add_input(X)

    assert completed.as_dict() == {"max_batch_size": 4, "input": [X]}


@pytest.mark.parametrize("size", [4, 8])
def test_the_batch_size_may_stay_or_grow(size):
    completed = config(max_batch_size=4)

    completed.set_max_batch_size(size)

    assert completed.as_dict()["max_batch_size"] == size


def test_the_batch_size_may_not_shrink():
    with pytest.raises(ValueError) as failure:
        config(max_batch_size=4).set_max_batch_size(2)

    assert str(failure.value) == (
        f"configuration specified max_batch_size 4, but {WHERE} specified max_batch_size 2"
    )


def test_a_configured_dynamic_batcher_is_kept():
    completed = config(dynamic_batching={"max_queue_delay_microseconds": 5})

    completed.set_dynamic_batching()

    assert completed.as_dict()["dynamic_batching"] == {"max_queue_delay_microseconds": 5}


@pytest.mark.parametrize("choice", ["sequence_batching", "ensemble_scheduling"])
def test_another_scheduler_cannot_be_replaced(choice):
    with pytest.raises(ValueError) as failure:
        config(**{choice: {}}).set_dynamic_batching()

    assert str(failure.value) == (
        f"Configuration specified scheduling_choice as '{choice}', but auto-complete-config function for "
        f"model 'net' tries to set scheduling_choice as 'dynamic_batching'"
    )


@pytest.mark.parametrize("kind", ["input", "output"])
@pytest.mark.parametrize("missing", ["name", "data_type", "dims"])
def test_a_missing_property_is_named(kind, missing):
    tensor = {key: value for key, value in X.items() if key != missing}

    with pytest.raises(ValueError) as failure:
        getattr(config(), f"add_{kind}")(tensor)

    which = kind if missing == "name" else f"{kind} 'X'"
    assert str(failure.value) == f"{which} {WHERE} is missing '{missing}' property."


def test_an_input_has_four_properties_and_no_more():
    with pytest.raises(ValueError) as failure:
        config().add_input({**X, "reshape": []})

    assert str(failure.value) == (
        f"input 'X' {WHERE} contains property other than 'name', 'data_type', 'dims' and 'optional'."
    )


def test_an_output_has_three_properties_and_no_more():
    with pytest.raises(ValueError) as failure:
        config().add_output({**X, "optional": True})

    assert str(failure.value) == (
        f"output 'X' {WHERE} contains property other than 'name', 'data_type' and 'dims'."
    )


@pytest.mark.parametrize("kind", ["input", "output"])
def test_another_datatype_contradicts_the_configuration(kind):
    completed = config(**{kind: [X]})

    with pytest.raises(ValueError) as failure:
        getattr(completed, f"add_{kind}")({**X, "data_type": "TYPE_INT8"})

    assert str(failure.value) == (
        f"unable to load model 'net', configuration expects datatype TYPE_FP32 for {kind} 'X', "
        f"model provides TYPE_INT8"
    )


@pytest.mark.parametrize("kind", ["input", "output"])
@pytest.mark.parametrize("dims", [[2], [-1], [4, 1]])
def test_other_dims_contradict_the_configuration(kind, dims):
    completed = config(**{kind: [X]})

    with pytest.raises(ValueError) as failure:
        getattr(completed, f"add_{kind}")({**X, "dims": dims})

    assert str(failure.value) == (
        f"model 'net', tensor 'X': the model expects dims {dims} but the model configuration specifies "
        f"dims [4]"
    )


def test_what_the_configuration_leaves_out_is_filled_in():
    completed = config(
        input=[{"name": "X", "data_type": "TYPE_INVALID", "dims": [], "format": "FORMAT_NONE"}]
    )

    completed.add_input({**X, "optional": True})

    assert completed.as_dict()["input"] == [{**X, "format": "FORMAT_NONE", "optional": True}]


def test_saying_what_is_configured_changes_nothing():
    completed = config(input=[{**X, "optional": True}])

    completed.add_input(X)

    assert completed.as_dict()["input"] == [{**X, "optional": True}]


def test_the_transaction_policy_has_one_property():
    with pytest.raises(ValueError) as failure:
        config().set_model_transaction_policy({"decoupled": True, "other": 1})

    assert str(failure.value) == (
        "model transaction property in auto-complete-config function for model 'net' contains property "
        "other than 'decoupled'."
    )


@pytest.mark.parametrize("configured", [True, False])
def test_the_transaction_policy_cannot_be_turned_round(configured):
    completed = config(model_transaction_policy={"decoupled": configured})

    completed.set_model_transaction_policy({"decoupled": configured})
    with pytest.raises(ValueError) as failure:
        completed.set_model_transaction_policy({"decoupled": not configured})

    assert str(failure.value) == (
        f"trying to change decoupled property in auto-complete-config for model 'net', which is already set "
        f"to '{configured}'."
    )


def test_inputs_and_outputs_are_found_by_name():
    parsed = {"input": [X], "output": [{**X, "name": "Y"}]}

    assert pb_utils.get_input_config_by_name(parsed, "X") == X
    assert pb_utils.get_input_config_by_name(parsed, "Y") is None
    assert pb_utils.get_output_config_by_name(parsed, "Y") == {**X, "name": "Y"}
    assert pb_utils.get_output_config_by_name({}, "Y") is None


@pytest.mark.parametrize(
    ("parsed", "expected"),
    [
        ({}, False),
        ({"model_transaction_policy": {}}, False),
        ({"model_transaction_policy": {"decoupled": False}}, False),
        ({"model_transaction_policy": {"decoupled": True}}, True),
    ],
)
def test_the_transaction_policy_is_read_from_the_configuration(parsed, expected):
    assert pb_utils.using_decoupled_model_transaction_policy(parsed) is expected
