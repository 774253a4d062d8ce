from __future__ import annotations

import pytest
from tritonpy.plugin import TritonError
from tritonpy_backend_onnxruntime.complete import complete_config
from tritonpy_backend_onnxruntime.signature import ModelSignature, TensorInfo

X = TensorInfo("X", "tensor(float)", "FP32", (-1, 3, -1))
Y = TensorInfo("Y", "tensor(int64)", "INT64", (-1,))
DYNAMIC = ModelSignature((X,), (), (Y,))
FIXED = ModelSignature(
    (TensorInfo("X", "tensor(string)", "BYTES", (2, 3)),), (), (TensorInfo("Y", "", "FP32", ()),)
)


def test_model_that_can_batch_gets_inputs_outputs_and_dynamic_batching():
    completed = complete_config({"name": "net", "max_batch_size": 0}, DYNAMIC, 4)

    assert completed == {
        "name": "net",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [3, -1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}],
    }


def test_model_that_cannot_batch_gets_full_dims_and_no_batching():
    completed = complete_config({"name": "net"}, FIXED, 4)

    assert completed == {
        "name": "net",
        "input": [{"name": "X", "data_type": "TYPE_STRING", "dims": [2, 3]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
    }


def test_default_of_zero_leaves_the_model_unbatched():
    completed = complete_config({"name": "net"}, DYNAMIC, 0)

    assert completed["max_batch_size"] == 0
    assert "dynamic_batching" not in completed
    assert completed["input"][0]["dims"] == [-1, 3, -1]


def test_batch_size_of_one_gets_no_dynamic_batching():
    completed = complete_config({"name": "net", "max_batch_size": 1}, DYNAMIC, 4)

    assert completed["max_batch_size"] == 1
    assert "dynamic_batching" not in completed


@pytest.mark.parametrize("scheduler", ["dynamic_batching", "sequence_batching"])
def test_chosen_scheduler_stays(scheduler):
    completed = complete_config({"name": "net", "max_batch_size": 8, scheduler: {"x": 1}}, DYNAMIC, 4)

    assert {key: completed[key] for key in completed if key.endswith("_batching")} == {scheduler: {"x": 1}}


def test_configured_side_stays_and_the_other_is_filled_in():
    mine = [{"name": "Y", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}]

    completed = complete_config({"name": "net", "max_batch_size": 2, "output": mine}, DYNAMIC, 4)

    assert completed["output"] == mine
    assert [tensor["name"] for tensor in completed["input"]] == ["X"]


def test_dims_that_spell_out_the_batch_dimension_mean_no_batching():
    mine = [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 3, 5]}]

    completed = complete_config({"name": "net", "max_batch_size": 0, "input": mine}, DYNAMIC, 4)

    assert completed["max_batch_size"] == 0
    assert completed["output"] == [{"name": "Y", "data_type": "TYPE_INT64", "dims": [-1]}]


def test_batching_that_the_model_cannot_do_fails_in_tritons_words():
    with pytest.raises(TritonError) as refused:
        complete_config({"name": "net", "max_batch_size": 2}, FIXED, 4)

    assert refused.value.message == (
        "autofill failed for model 'net': model does not support batching while non-zero "
        "max_batch_size is specified"
    )


def test_given_configuration_is_not_changed():
    given = {"name": "net", "max_batch_size": 0}

    complete_config(given, DYNAMIC, 4)

    assert given == {"name": "net", "max_batch_size": 0}


def test_output_without_datatype_is_left_out_with_a_warning(caplog):
    odd = TensorInfo("P", "seq(map(int64,tensor(float)))", "", ())

    completed = complete_config({"name": "net"}, ModelSignature((X,), (), (Y, odd)), 4)

    assert [tensor["name"] for tensor in completed["output"]] == ["Y"]
    assert "'P' is left out, there is no datatype for ONNX type seq(map(int64,tensor(float)))" in caplog.text
