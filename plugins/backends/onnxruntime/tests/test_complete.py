from __future__ import annotations

from tritonpy_backend_onnxruntime.complete import complete_config
from tritonpy_backend_onnxruntime.signature import ModelSignature, TensorInfo

X = TensorInfo("X", "tensor(float)", "FP32", (-1, 3, -1))
Y = TensorInfo("Y", "tensor(int64)", "INT64", (-1,))
PROBABILITIES = TensorInfo("P", "seq(map(int64,tensor(float)))", "", ())


def test_inputs_outputs_and_batching_are_filled_in_from_the_signature():
    completed = complete_config({"name": "net", "max_batch_size": 0}, ModelSignature((X,), (), (Y,)), 4)

    assert completed == {
        "name": "net",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [3, -1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}],
    }


def test_input_that_has_a_default_in_the_file_is_not_asked_of_requests():
    weight = TensorInfo("W", "tensor(float)", "FP32", (3,))

    completed = complete_config({"name": "net"}, ModelSignature((X,), (weight,), (Y,)), 4)

    assert completed["max_batch_size"] == 4
    assert [tensor["name"] for tensor in completed["input"]] == ["X"]


def test_output_without_datatype_is_left_out_with_a_warning_and_does_not_keep_from_batching(caplog):
    completed = complete_config({"name": "net"}, ModelSignature((X,), (), (Y, PROBABILITIES)), 4)

    assert [tensor["name"] for tensor in completed["output"]] == ["Y"]
    assert completed["max_batch_size"] == 4
    assert "'P' is left out, there is no datatype for ONNX type seq(map(int64,tensor(float)))" in caplog.text
