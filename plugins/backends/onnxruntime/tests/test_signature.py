from __future__ import annotations

import onnxruntime
import pytest
from tritonpy.plugin import DATATYPES, TritonError
from tritonpy_backend_onnxruntime.signature import ModelSignature, check_tensors, read_signature
from tritonpy_backend_onnxruntime.tensor_info import TensorInfo

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
def test_configuration_that_fits_is_accepted(signature, given):
    assert check_tensors(given, signature) == frozenset()


def test_scalars_have_a_dimension_for_clients_only():
    signature = ModelSignature((info("X", []), info("Z", [2])), (), (info("Y", []),))

    assert check_tensors(config({"X": [1, 1], "Z": [2]}, {"Y": [1]}), signature) == {"X", "Y"}


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
        check_tensors(given, signature)

    assert refused.value.message == text
    assert refused.value.code.text == "Invalid argument"


def test_wrong_datatype_is_refused_in_tritons_words():
    given = config({"X": [3, 224, 224]}, {"Y": [10]}, 4)
    given["input"][0]["data_type"] = "TYPE_INT32"

    with pytest.raises(TritonError) as refused:
        check_tensors(given, IMAGE)

    assert refused.value.message == (
        "unable to load model 'net', configuration expects datatype TYPE_INT32 for input 'X', "
        "model provides TYPE_FP32"
    )


def test_output_that_is_not_configured_is_not_compared():
    signature = ModelSignature(FIXED.inputs, (), (*FIXED.outputs, TensorInfo("EXTRA", "map", "", ())))

    assert check_tensors(config({"X": [1, 3]}, {"Y": [1, 10]}), signature) == frozenset()


def test_input_with_a_default_in_the_file_may_be_configured_or_not():
    signature = ModelSignature(FIXED.inputs, (info("W", [3]),), FIXED.outputs)
    with_it = config({"X": [1, 3], "W": [3]}, {"Y": [1, 10]})
    with_it["input"][1]["optional"] = True

    assert check_tensors(config({"X": [1, 3]}, {"Y": [1, 10]}), signature) == frozenset()
    assert check_tensors(with_it, signature) == frozenset()


def test_an_input_that_the_model_requires_cannot_be_optional():
    given = config({"X": [1, 3]}, {"Y": [1, 10]})
    given["input"][0]["optional"] = True

    with pytest.raises(TritonError, match="optional input 'X' is required by the model"):
        check_tensors(given, FIXED)


def test_configured_output_without_datatype_is_refused_with_its_onnx_type():
    signature = ModelSignature(FIXED.inputs, (), (TensorInfo("Y", "seq(tensor(float))", "", ()),))

    with pytest.raises(TritonError, match=r"output 'Y' is of seq\(tensor\(float\)\)"):
        check_tensors(config({"X": [1, 3]}, {"Y": [1]}), signature)


RAGGED = ModelSignature(
    (info("X", [-1]), info("ENDS", [-1]), info("SHAPES", [-1, 2])), (), (info("Y", [-1]),)
)
STATEFUL = ModelSignature(
    (info("X", [-1, 1]), info("START", [-1, 1], "INT32"), info("IN", [-1, 4])),
    (),
    (info("Y", [-1, 1]), info("OUT", [-1, 4])),
)


def ragged(dims=(-1, 2), **changes):
    """A ragged X of these dims, whose sizes come in ENDS and SHAPES and which cuts Y."""
    given = config({"X": list(dims)}, {"Y": list(dims)}, 4)
    given["input"][0]["allow_ragged_batch"] = True
    counts = {"data_type": "TYPE_FP32", "source_input": ["X"]}
    given["batch_input"] = [
        {"kind": "BATCH_ACCUMULATED_ELEMENT_COUNT", "target_name": ["ENDS"], **counts},
        {"kind": "BATCH_ITEM_SHAPE", "target_name": ["SHAPES"], **counts},
    ]
    given["batch_output"] = [{"target_name": ["Y"], "source_input": ["X"]}]
    return given | changes


def stateful(control=None, state=None):
    """X and Y, and a control and a state that no client sends."""
    given = config({"X": [1]}, {"Y": [1]}, 4)
    given["sequence_batching"] = {
        "control_input": [
            {
                "name": "START",
                "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}],
                **(control or {}),
            }
        ],
        "state": [
            {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_FP32", "dims": [4], **(state or {})}
        ],
    }
    return given


@pytest.mark.parametrize(("signature", "given"), [(RAGGED, ragged()), (STATEFUL, stateful())])
def test_what_the_server_gives_need_not_be_an_input(signature, given):
    assert check_tensors(given, signature) == frozenset()


@pytest.mark.parametrize(
    ("signature", "given", "text"),
    [
        (
            FIXED,
            ragged(batch_input=[]),
            "unable to load model 'net', configuration expects model provides input with shape [-1] for "
            "ragged input 'X', model provides [1,3]",
        ),
        (
            RAGGED,
            ragged(batch_input=[]),
            "unable to load model 'net', configuration expects 1 inputs, model provides 3",
        ),
        (
            ModelSignature((info("X", [-1]),), (), (info("Y", [-1]),)),
            ragged(),
            "configuration specified batch input 'ENDS', but model does not provide that input",
        ),
        (
            ModelSignature(
                (*RAGGED.inputs[:1], info("ENDS", [-1], "INT32"), RAGGED.inputs[2]), (), RAGGED.outputs
            ),
            ragged(),
            "unable to load model 'net', configuration expects datatype TYPE_FP32 for batch input 'ENDS', "
            "model provides TYPE_INT32",
        ),
        (
            ModelSignature((*RAGGED.inputs[:2], info("SHAPES", [-1])), (), RAGGED.outputs),
            ragged(),
            "model 'net', tensor 'SHAPES': the model expects 1 dimensions (shape [-1]) but the model "
            "configuration specifies 2 dimensions (shape [-1,-1])",
        ),
        (
            STATEFUL,
            stateful(control={"name": "BEGIN"}),
            "configuration specified sequence control 'BEGIN', but model does not provide that input",
        ),
        (
            STATEFUL,
            stateful(control={"name": "IN"}),
            "unable to load model 'net', sequence control 'IN' in model has dims [4] but dims [1] is "
            "expected",
        ),
        (
            STATEFUL,
            stateful(control={"control": [{"fp32_false_true": [0, 1]}]}),
            "unable to load model 'net', sequence control 'START', the model expects data-type INT32 but the "
            "model configuration specifies data-type TYPE_FP32",
        ),
        (
            STATEFUL,
            stateful(state={"input_name": "MISSING"}),
            "configuration specified state 'MISSING', but model does not provide that input",
        ),
        (
            STATEFUL,
            stateful(state={"output_name": "MISSING"}),
            "configuration specified state 'MISSING', but model does not provide that output",
        ),
        (
            STATEFUL,
            stateful(state={"data_type": "TYPE_INT64"}),
            "unable to load model 'net', configuration expects datatype TYPE_INT64 for input state 'IN', "
            "model provides TYPE_FP32",
        ),
        (
            STATEFUL,
            stateful(state={"dims": [5]}),
            "model 'net', tensor 'IN': the model expects 2 dimensions (shape [-1,4]) but the model "
            "configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 and "
            "then the configured dims, complete shape [-1,5])",
        ),
    ],
)
def test_what_the_server_gives_has_to_be_what_the_model_has(signature, given, text):
    with pytest.raises(TritonError) as refused:
        check_tensors(given, signature)

    assert refused.value.message == text


def test_a_ragged_input_cannot_be_optional():
    given = ragged()
    given["input"][0]["optional"] = True
    signature = ModelSignature(RAGGED.inputs[1:], RAGGED.inputs[:1], RAGGED.outputs)

    with pytest.raises(TritonError, match="ragged input 'X', which is not supported for optional input"):
        check_tensors(given, signature)
