"""Models that complete their configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

BARE = {"name": "net", "max_batch_size": 0, "input": [], "output": []}
X = {"name": "X", "data_type": "TYPE_FP32", "dims": [2]}
FUNCTION = "auto-complete-config function for model 'net'"


def tensors(config: dict[str, Any], kind: str) -> list[tuple[Any, ...]]:
    return [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config[kind]]


def test_a_model_needs_no_configuration_file(server):
    config = server.config("completes")

    assert tensors(config, "input") == [("X", "TYPE_FP32", [2]), ("Y", "TYPE_FP32", [-1])]
    assert [tensor["optional"] for tensor in config["input"]] == [False, True]
    assert tensors(config, "output") == [("OUT", "TYPE_STRING", [1])]
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"]["preferred_batch_size"] == [8]
    assert config["backend"] == "python"


def test_what_is_completed_counts(server):
    good = server.infer("completes", {"X": [[1, 2]]})
    bad = server.infer("completes", {"X": [[1, 2, 3]]})

    assert json.loads(good.outputs["OUT"][0])["max_batch_size"] == 8
    assert bad.status == 400
    assert "unexpected shape for input 'X' for model 'completes'. Expected [-1,2], got [1,3]" in bad.error


def test_what_is_to_be_completed_is_the_whole_configuration(server):
    found = server.wait_for_log(r"to be completed: (\{.*\})")

    config = json.loads(found[1].replace('\\"', '"'))
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("completes", "python", 0)
    assert (config["input"], config["output"]) == ([], [])
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert config["default_model_filename"] == "model.py"
    [group] = config["instance_group"]
    assert (group["name"], group["kind"], group["count"]) == ("completes", "KIND_CPU", 1)
    assert config["optimization"]["priority"] == "PRIORITY_DEFAULT"


def test_half_a_configuration_is_completed(server):
    config = server.config("completes_the_rest")

    assert config["max_batch_size"] == 4
    assert tensors(config, "input") == [("X", "TYPE_FP32", [2])]
    assert tensors(config, "output") == [("OUT", "TYPE_FP32", [2])]
    assert "dynamic_batching" not in config


def test_a_model_says_that_it_is_decoupled(server):
    assert server.config("completes_the_rest")["model_transaction_policy"] == {"decoupled": True}
    sent = server.stream("completes_the_rest", {"X": [[1, 2]]})
    assert [each.outputs for each in sent] == [{"OUT": [[1, 2]]}, {"OUT": [[2, 4]]}]


@pytest.mark.parametrize(
    ("config", "steps", "changes"),
    [
        ({}, [["set_max_batch_size", 4]], {"max_batch_size": 4}),
        ({"max_batch_size": 2}, [["set_max_batch_size", 4]], {"max_batch_size": 4}),
        ({"max_batch_size": 4}, [["set_max_batch_size", 4]], {}),
        ({}, [["set_dynamic_batching"]], {"dynamic_batching": {}}),
        ({"dynamic_batching": {"max_queue_delay_microseconds": 5}}, [["set_dynamic_batching"]], {}),
        ({}, [["add_input", X]], {"input": [X]}),
        ({}, [["add_output", X]], {"output": [X]}),
        ({}, [["add_input", X], ["add_input", X]], {"input": [X]}),
        ({}, [["add_input", {**X, "optional": True}]], {"input": [{**X, "optional": True}]}),
        ({"input": [{**X, "dims": []}]}, [["add_input", X]], {"input": [X]}),
        ({"output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]}, [["add_output", X]], None),
        (
            {},
            [["set_model_transaction_policy", {"decoupled": True}]],
            {"model_transaction_policy": {"decoupled": True}},
        ),
        (
            {"model_transaction_policy": {"decoupled": True}},
            [["set_model_transaction_policy", {"decoupled": True}]],
            {},
        ),
    ],
    ids=str,
)
def test_a_helper_completes_the_dict(server, config, steps, changes):
    completed = server.ask("configs.completed", config, *steps)

    if changes is None:
        assert [tensor["name"] for tensor in completed["output"]] == ["Y", "X"]
    else:
        assert completed == {**BARE, **config, **changes}


@pytest.mark.parametrize(
    ("config", "steps", "text"),
    [
        (
            {"max_batch_size": 8},
            [["set_max_batch_size", 4]],
            f"configuration specified max_batch_size 8, but in {FUNCTION} specified max_batch_size 4",
        ),
        (
            {"sequence_batching": {}},
            [["set_dynamic_batching"]],
            f"Configuration specified scheduling_choice as 'sequence_batching', but {FUNCTION} tries to set "
            "scheduling_choice as 'dynamic_batching'",
        ),
        (
            {"ensemble_scheduling": {}},
            [["set_dynamic_batching"]],
            f"Configuration specified scheduling_choice as 'ensemble_scheduling', but {FUNCTION} tries to "
            "set scheduling_choice as 'dynamic_batching'",
        ),
        ({}, [["add_input", {}]], f"input in {FUNCTION} is missing 'name' property."),
        ({}, [["add_output", {}]], f"output in {FUNCTION} is missing 'name' property."),
        (
            {},
            [["add_input", {"name": "X", "dims": [1]}]],
            f"input 'X' in {FUNCTION} is missing 'data_type' property.",
        ),
        (
            {},
            [["add_output", {"name": "X", "data_type": "TYPE_FP32"}]],
            f"output 'X' in {FUNCTION} is missing 'dims' property.",
        ),
        (
            {},
            [["add_input", {**X, "format": "FORMAT_NONE"}]],
            f"input 'X' in {FUNCTION} contains property other than 'name', 'data_type', 'dims' and "
            "'optional'.",
        ),
        (
            {},
            [["add_output", {**X, "optional": True}]],
            f"output 'X' in {FUNCTION} contains property other than 'name', 'data_type' and 'dims'.",
        ),
        (
            {"input": [X]},
            [["add_input", {**X, "data_type": "TYPE_INT8"}]],
            "unable to load model 'net', configuration expects datatype TYPE_FP32 for input 'X', model "
            "provides TYPE_INT8",
        ),
        (
            {"output": [X]},
            [["add_output", {**X, "dims": [3]}]],
            "model 'net', tensor 'X': the model expects dims [3] but the model configuration specifies dims "
            "[2]",
        ),
        (
            {},
            [["set_model_transaction_policy", {"coupled": True}]],
            "model transaction property in auto-complete-config function for model 'net' contains property "
            "other than 'decoupled'.",
        ),
        (
            {"model_transaction_policy": {"decoupled": False}},
            [["set_model_transaction_policy", {"decoupled": True}]],
            "trying to change decoupled property in auto-complete-config for model 'net', which is already "
            "set to 'False'.",
        ),
    ],
    ids=str,
)
def test_a_contradiction_is_a_value_error(server, config, steps, text):
    assert server.ask("configs.completed", config, *steps) == ["ValueError", text]


def test_tensors_are_looked_up_in_a_configuration(server):
    assert server.ask("configs.lookups") == [
        {"name": "A", "dims": [1]},
        None,
        {"name": "B", "dims": [2]},
        None,
        True,
        False,
        None,
    ]


def test_initialize_is_told_what_it_is_to_be(server):
    seen = json.loads(server.infer("early", {}).outputs["SEEN"][0])

    args = seen["args"]
    config = json.loads(args.pop("model_config"))
    assert args == {
        "model_instance_kind": "CPU",
        "model_instance_name": "early_0",
        "model_instance_device_id": "0",
        "model_repository": args["model_repository"],
        "model_version": "1",
        "model_name": "early",
    }
    assert args["model_repository"].endswith("models/early")
    assert config == server.config("early")


def test_a_model_finds_its_own_files(server):
    seen = json.loads(server.infer("early", {}).outputs["SEEN"][0])

    directory = seen["args"]["model_repository"]
    assert seen["directory"] == f"{directory}/1"
    assert seen["file"] == f"{directory}/1/model.py"
    assert seen["module"] == "1.model"
    assert {directory, f"{directory}/1"} <= set(seen["path"])
