from __future__ import annotations

import numpy as np
import pytest
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor


def test_outputs_are_added_in_order_and_calls_chain():
    response = InferResponse().add("B", np.zeros(2, np.float32)).add("A", np.ones((1, 1), np.int64))

    assert [(out.name, out.datatype, out.shape) for out in response.outputs] == [
        ("B", "FP32", (2,)),
        ("A", "INT64", (1, 1)),
    ]
    assert response.error is None


def test_an_array_is_not_copied():
    array = np.zeros(2, np.float32)

    assert InferResponse().add("Y", array).outputs[0].numpy() is array


def test_a_tensor_is_renamed_without_looking_at_its_bytes():
    received = bytearray(8)
    tensor = Tensor("X", "FP64", (1,), received)

    [output] = InferResponse().add("Y", tensor).outputs

    assert (output.name, output.datatype, output.shape) == ("Y", "FP64", (1,))
    assert output.buffer is received
    assert tensor.name == "X"


def test_bf16_is_named_since_numpy_cannot_say_it():
    bits = np.array([0x3F80], np.uint16)

    response = InferResponse().add("Y", bits, "BF16").add("Z", bits)

    assert [output.datatype for output in response.outputs] == ["BF16", "UINT16"]


def test_a_dtype_the_protocol_lacks_is_refused_with_the_name_of_the_output():
    with pytest.raises(InvalidArg, match=r"tensor 'Y': the protocol has no datatype for .* 'complex128'"):
        InferResponse().add("Y", np.zeros(1, np.complex128))


def test_responses_do_not_share_their_outputs_and_parameters():
    outputs = [Tensor("X", "INT8", (1,), b"a")]
    first, second = InferResponse(outputs), InferResponse(outputs)

    first.add("Y", np.zeros(1, np.int8))
    first.parameters["k"] = 1

    assert [len(response.outputs) for response in (first, second)] == [2, 1]
    assert second.parameters == {}
    assert len(outputs) == 1


def test_an_error_shows_in_the_representation():
    assert "NotFound" in repr(InferResponse(error=NotFound("gone")))
    assert repr(InferResponse([Tensor("X", "INT8", (1,), b"a")])) == "InferResponse([Tensor('X', INT8, [1])])"
