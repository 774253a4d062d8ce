from __future__ import annotations

import onnxruntime
import pytest
from tritonpy.plugin import DATATYPES, TritonError
from tritonpy_backend_onnxruntime.signature import (
    Binding,
    ModelSignature,
    TensorInfo,
    bind_tensors,
    read_signature,
)

ONNX_TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float",
    "FP64": "double",
    "BYTES": "string",
    "BF16": "bfloat16",
}


def info(name, shape, datatype="FP32"):
    return TensorInfo(name, "tensor(float)", datatype, tuple(shape))


def config(inputs, outputs, max_batch_size=0):
    return {
        "name": "net",
        "max_batch_size": max_batch_size,
        "input": [{"name": name, "data_type": "TYPE_FP32", "dims": dims} for name, dims in inputs.items()],
        "output": [{"name": name, "data_type": "TYPE_FP32", "dims": dims} for name, dims in outputs.items()],
    }


IMAGE = ModelSignature((info("X", [-1, 3, 224, -1]),), (), (info("Y", [-1, 10]),))
FIXED = ModelSignature((info("X", [1, 3]),), (), (info("Y", [1, 10]),))


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_is_read_from_a_model(datatype, onnx):
    kind = ONNX_TYPES[datatype]
    session = onnxruntime.InferenceSession(
        onnx(f"net ({kind}[N,2,K] X) => ({kind}[N,2,K] Y) {{ Y = Identity(X) }}")
    )

    signature = read_signature(session)

    assert signature.inputs == (TensorInfo("X", f"tensor({kind})", datatype, (-1, 2, -1)),)
    assert signature.outputs == (TensorInfo("Y", f"tensor({kind})", datatype, (-1, 2, -1)),)


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        (IMAGE, config({"X": [3, 224, 224]}, {"Y": [10]}, 8)),
        (IMAGE, config({"X": [3, 224, -1]}, {"Y": [10]}, 8)),
        (IMAGE, config({"X": [-1, 3, 224, 224]}, {"Y": [-1, 10]})),
        (IMAGE, config({"X": [7, 3, 224, 224]}, {"Y": [7, 10]})),
        (FIXED, config({"X": [1, 3]}, {"Y": [1, 10]})),
        (FIXED, config({"X": ["1", "3"]}, {"Y": ["1", "10"]})),
    ],
)
def test_configuration_that_fits_is_bound(signature, given):
    inputs, outputs = bind_tensors(given, signature)

    assert [binding.name for binding in inputs + outputs] == ["X", "Y"]
    assert all(binding.model is None for binding in inputs + outputs)


@pytest.mark.parametrize(
    ("signature", "given", "text"),
    [
        (
            FIXED,
            config({"X": [3]}, {"Y": [10]}, 4),
            "model 'net', tensor 'X': for the model to support batching the shape should have at least 1 "
            "dimension and the first dimension must be -1; but shape expected by the model is [1,3]",
        ),
        (
            FIXED,
            config({"X": [-1, 3]}, {"Y": [1, 10]}),
            "model 'net', tensor 'X': the model expects 2 dimensions (shape [1,3]) but the model "
            "configuration specifies 2 dimensions (shape [-1,3])",
        ),
        (
            FIXED,
            config({"X": [2, 3]}, {"Y": [1, 10]}),
            "model 'net', tensor 'X': the model expects 2 dimensions (shape [1,3]) but the model "
            "configuration specifies 2 dimensions (shape [2,3])",
        ),
        (
            IMAGE,
            config({"X": [224, 224, 3]}, {"Y": [10]}, 4),
            "model 'net', tensor 'X': the model expects 4 dimensions (shape [-1,3,224,-1]) but the model "
            "configuration specifies 4 dimensions (an initial batch dimension because max_batch_size > 0 and "
            "then the configured dims, complete shape [-1,224,224,3])",
        ),
        (
            IMAGE,
            config({"X": [3, 224, 224]}, {"Y": [1, 10]}, 4),
            "model 'net', tensor 'Y': the model expects 2 dimensions (shape [-1,10]) but the model "
            "configuration specifies 3 dimensions (an initial batch dimension because max_batch_size > 0 and "
            "then the configured dims, complete shape [-1,1,10])",
        ),
        (
            IMAGE,
            config({"X": [3, 224, 224], "Z": [1]}, {"Y": [10]}, 4),
            "unable to load model 'net', configuration expects 2 inputs, model provides 1",
        ),
        (
            IMAGE,
            config({"Q": [3, 224, 224]}, {"Y": [10]}, 4),
            "unexpected inference input 'Q', allowed inputs are: X",
        ),
        (
            IMAGE,
            config({"X": [3, 224, 224]}, {"Q": [10]}, 4),
            "unexpected inference output 'Q', allowed outputs are: Y",
        ),
    ],
)
def test_configuration_that_does_not_fit_is_refused_in_tritons_words(signature, given, text):
    with pytest.raises(TritonError) as refused:
        bind_tensors(given, signature)

    assert refused.value.message == text
    assert refused.value.code.text == "Invalid argument"


def test_wrong_datatype_is_refused_in_tritons_words():
    given = config({"X": [3, 224, 224]}, {"Y": [10]}, 4)
    given["input"][0]["data_type"] = "TYPE_INT32"

    with pytest.raises(TritonError) as refused:
        bind_tensors(given, IMAGE)

    assert refused.value.message == (
        "unable to load model 'net', configuration expects datatype TYPE_INT32 for input 'X', "
        "model provides TYPE_FP32"
    )


def test_output_that_is_not_configured_is_not_bound():
    signature = ModelSignature(FIXED.inputs, (), (*FIXED.outputs, info("EXTRA", [1])))

    assert [
        binding.name for binding in bind_tensors(config({"X": [1, 3]}, {"Y": [1, 10]}), signature)[1]
    ] == ["Y"]


def test_input_with_a_default_in_the_file_may_be_configured_or_not():
    signature = ModelSignature(FIXED.inputs, (info("W", [3]),), FIXED.outputs)

    without = bind_tensors(config({"X": [1, 3]}, {"Y": [1, 10]}), signature)[0]
    with_it = bind_tensors(config({"X": [1, 3], "W": [3]}, {"Y": [1, 10]}), signature)[0]

    assert [binding.name for binding in without] == ["X"]
    assert [binding.name for binding in with_it] == ["X", "W"]


@pytest.mark.parametrize(
    "change",
    [{"batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}]}, {"batch_output": [{"target_name": ["Y"]}]}],
)
def test_batch_inputs_and_outputs_are_refused_clearly(change):
    with pytest.raises(TritonError, match="does not support batch_input and batch_output"):
        bind_tensors(config({"X": [1, 3]}, {"Y": [1, 10]}) | change, FIXED)


def test_ragged_input_is_refused_clearly():
    given = config({"X": [1, 3]}, {"Y": [1, 10]})
    given["input"][0]["allow_ragged_batch"] = True

    with pytest.raises(
        TritonError, match="input 'X': backend 'onnxruntime' does not support allow_ragged_batch"
    ):
        bind_tensors(given, FIXED)


def test_configured_output_without_datatype_is_refused_with_its_onnx_type():
    signature = ModelSignature(FIXED.inputs, (), (TensorInfo("Y", "seq(tensor(float))", "", ()),))

    with pytest.raises(TritonError, match=r"output 'Y' has ONNX type seq\(tensor\(float\)\)"):
        bind_tensors(config({"X": [1, 3]}, {"Y": [1]}), signature)


@pytest.mark.parametrize(
    ("client", "model", "batches", "came", "wanted"),
    [
        ((4,), (2, 2), False, (4,), (2, 2)),
        ((4,), (2, 2), True, (5, 4), (5, 2, 2)),
        ((1,), (), True, (5, 1), (5,)),
        ((1,), (), False, (1,), ()),
        ((-1, 3, -1), (3, -1, -1), False, (5, 3, 7), (3, 5, 7)),
        ((-1, 2, 2), (-1, 4), True, (0, 6, 2, 2), (0, 6, 4)),
    ],
)
def test_reshape_moves_free_dimensions_in_order_and_back(client, model, batches, came, wanted):
    binding = Binding("X", "FP32", client, model, batches)

    assert binding.to_model(came) == wanted
    assert binding.to_client(wanted) == came
