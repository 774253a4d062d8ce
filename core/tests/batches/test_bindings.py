"""What a configuration says about the tensors of a model."""

from __future__ import annotations

from typing import Any

from tritonpy.batches.bindings import (
    Binding,
    GivenTensor,
    bind_inputs,
    bind_outputs,
    given_inputs,
    kept_outputs,
)
from tritonpy.completion import complete_config

STATEFUL: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": ["-1"]}],
    "sequence_batching": {
        "control_input": [
            {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}]},
            {"name": "END", "control": [{"kind": "CONTROL_SEQUENCE_END", "fp32_false_true": [0, 1]}]},
            {
                "name": "READY",
                "control": [{"kind": "CONTROL_SEQUENCE_READY", "bool_false_true": [False, True]}],
            },
            {"name": "ID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_STRING"}]},
        ],
        "state": [
            {"input_name": "S", "output_name": "T", "data_type": "TYPE_INT64", "dims": [3, -1]},
            {"input_name": "U", "output_name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
        ],
    },
    "batch_input": [
        {
            "kind": "BATCH_ELEMENT_COUNT",
            "target_name": ["COUNT", "SAME"],
            "data_type": "TYPE_FP32",
            "source_input": ["X"],
        },
        {
            "kind": "BATCH_ITEM_SHAPE",
            "target_name": ["SHAPE"],
            "data_type": "TYPE_INT32",
            "source_input": ["X"],
        },
    ],
}


def test_controls_states_and_batch_inputs_are_given_by_the_server() -> None:
    assert given_inputs(STATEFUL) == [
        GivenTensor("START", "INT32", (1,), "sequence control"),
        GivenTensor("END", "FP32", (1,), "sequence control"),
        GivenTensor("READY", "BOOL", (1,), "sequence control"),
        GivenTensor("ID", "BYTES", (1,), "sequence control"),
        GivenTensor("S", "INT64", (3, -1), "state"),
        GivenTensor("U", "FP32", (-1,), "state"),
        GivenTensor("COUNT", "FP32", (-1,), "batch input"),
        GivenTensor("SAME", "FP32", (-1,), "batch input"),
        GivenTensor("SHAPE", "INT32", (-1, -1), "batch input"),
    ]
    assert [tensor.name for tensor in kept_outputs(STATEFUL)] == ["T", "Y"]


def test_a_configuration_without_types_is_read_until_it_is_refused() -> None:
    config = {"sequence_batching": {"state": [{"data_type": "TYPE_INVALID"}]}, "batch_input": [{}]}

    assert given_inputs(config) == [GivenTensor("", "", (), "state")]


def test_requests_bring_controls_and_states_but_no_batch_inputs() -> None:
    inputs = bind_inputs(STATEFUL, ())

    assert list(inputs) == ["X", "START", "END", "READY", "ID", "S", "U"]
    assert inputs["S"] == Binding("S", "INT64", (3, -1), True)


def test_a_model_is_asked_for_its_outputs_and_for_the_states_that_are_none() -> None:
    assert [binding.name for binding in bind_outputs(STATEFUL, ())] == ["Y", "T"]


def test_a_shape_tensor_has_no_rows() -> None:
    tensor = {"name": "X", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}
    config = {"name": "m", "max_batch_size": 4, "input": [tensor], "output": [tensor]}

    assert bind_inputs(config, ())["X"].batches is False
    assert bind_outputs(config, ())[0].batches is False


def test_a_model_sees_the_dims_of_a_reshape() -> None:
    tensor = {"name": "X", "data_type": "TYPE_INT32", "dims": [4], "reshape": {"shape": [2, 2]}}

    assert bind_inputs({"name": "m", "input": [tensor]}, ())["X"].dims == (2, 2)


class FileTensor:
    def __init__(self, name: str, *shape: int) -> None:
        self.name = name
        self.type_name = "float32"
        self.datatype = "FP32"
        self.shape = shape


def test_nothing_that_the_server_gives_or_keeps_is_filled_in() -> None:
    config = {**STATEFUL, "input": [], "output": []}
    inputs = [FileTensor("X", -1, 2), *(FileTensor(given.name, 4) for given in given_inputs(STATEFUL))]
    outputs = [FileTensor("Y", -1, 3), FileTensor("T", 4), FileTensor("Z", -1)]

    completed = complete_config(config, inputs, outputs, batch_size=8)

    assert [(tensor["name"], tensor["dims"]) for tensor in completed["input"]] == [("X", [2])]
    assert [tensor["name"] for tensor in completed["output"]] == ["Z"]
    assert completed["max_batch_size"] == 4
