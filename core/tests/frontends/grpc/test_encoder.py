from __future__ import annotations

import numpy as np
import pytest
from tritonpy.errors import NotFound
from tritonpy.frontends.grpc.encoder import (
    ResponseEncoder,
    encode_empty_final,
    encode_failure,
    encode_refusal,
)
from tritonpy.protos import InferParameter, ModelInferResponse, ModelStreamInferResponse
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

FINAL = "triton_final_response"


def request(id: str = "") -> InferRequest:
    return InferRequest("m", {}, model_version="3", id=id)


def test_outputs_of_every_kind_are_read_by_protobuf() -> None:
    response = InferResponse()
    response.add("numbers", np.array([[1, 2]], np.int16))
    response.add("words", np.array([b"a", b"bc"], object))
    response.add("none", np.zeros((0, 4), np.float32))
    response.add("brains", np.array([1, 2], np.uint16), "BF16")
    response.add("large", np.arange(300_000, dtype=np.uint8))

    message = ModelInferResponse.FromString(ResponseEncoder().encode(request("my id"), response))

    assert (message.model_name, message.model_version, message.id) == ("m", "3", "my id")
    assert [(out.name, out.datatype, list(out.shape)) for out in message.outputs] == [
        ("numbers", "INT16", [1, 2]),
        ("words", "BYTES", [2]),
        ("none", "FP32", [0, 4]),
        ("brains", "BF16", [2]),
        ("large", "UINT8", [300_000]),
    ]
    assert list(message.raw_output_contents) == [
        b"\1\0\2\0",
        b"\1\0\0\0a\2\0\0\0bc",
        b"",
        b"\1\0\2\0",
        np.arange(300_000, dtype=np.uint8).tobytes(),
    ]


def test_a_remembered_head_is_used_for_the_same_shapes_only() -> None:
    encoder = ResponseEncoder()

    shapes = []
    for rows in (1, 2, 1):
        body = encoder.encode(request(), InferResponse().add("O", np.zeros((rows, 2), np.float32)))
        shapes.append(list(ModelInferResponse.FromString(body).outputs[0].shape))

    assert shapes == [[1, 2], [2, 2], [1, 2]]


def test_remembered_heads_are_bounded() -> None:
    encoder = ResponseEncoder()

    for size in range(2000):
        encoder.encode(request(), InferResponse().add("O", np.zeros(size, np.uint8)))

    assert len(encoder._heads) < 1000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, InferParameter(bool_param=True)),
        (-5, InferParameter(int64_param=-5)),
        (2**63, InferParameter(uint64_param=2**63)),
        (1.5, InferParameter(double_param=1.5)),
        ("text", InferParameter(string_param="text")),
    ],
)
def test_response_parameters_keep_their_type(value: object, expected: InferParameter) -> None:
    response = InferResponse(parameters={"key": value})  # type: ignore[dict-item]

    message = ModelInferResponse.FromString(ResponseEncoder().encode(request(), response))

    assert dict(message.parameters) == {"key": expected}


@pytest.mark.parametrize("final", [False, True])
def test_streamed_response_says_whether_it_is_the_last(final: bool) -> None:
    response = InferResponse(parameters={"key": 1}).add("O", np.zeros(200, np.uint8))

    body = ResponseEncoder().encode_streamed(request("i"), response, final)

    streamed = ModelStreamInferResponse.FromString(body)
    assert streamed.error_message == ""
    assert streamed.infer_response.id == "i"
    assert streamed.infer_response.parameters[FINAL].bool_param is final
    assert streamed.infer_response.parameters["key"].int64_param == 1
    assert list(streamed.infer_response.raw_output_contents) == [bytes(200)]


def test_refusal_echoes_the_id_alone() -> None:
    streamed = ModelStreamInferResponse.FromString(encode_refusal(NotFound("no such"), "i"))

    assert streamed == ModelStreamInferResponse(error_message="no such", infer_response={"id": "i"})


@pytest.mark.parametrize("final", [False, True])
def test_failure_echoes_model_and_id(final: bool) -> None:
    streamed = ModelStreamInferResponse.FromString(encode_failure(NotFound("é" * 200), request("i"), final))

    assert streamed == ModelStreamInferResponse(
        error_message="é" * 200,
        infer_response={"model_name": "m", "id": "i", "parameters": {FINAL: {"bool_param": final}}},
    )


def test_error_without_a_text_is_still_an_error() -> None:
    assert ModelStreamInferResponse.FromString(encode_refusal(NotFound(""), "")).error_message == "Not found"


def test_empty_final_response_has_no_outputs() -> None:
    streamed = ModelStreamInferResponse.FromString(encode_empty_final("m", "", "i"))

    assert streamed == ModelStreamInferResponse(
        infer_response={"model_name": "m", "id": "i", "parameters": {FINAL: {"bool_param": True}}}
    )
